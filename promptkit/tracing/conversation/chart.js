/*
 * The strip of requests of one source. From top to bottom: the size of each request by part, with the limit of the window and marks for
 * checkpoints; its cached and its paid tokens; the price so far; and the requests that show the selected message.
 */

const INSET = 9; // pixels at both ends: half of the slider's thumb, so that both have the same scale
const WIDEST = 32; // pixels from one request to the next: few requests stand at the left
const LANES = { size: 108, paid: 30, price: 26, shown: 5 };
const LOW_LANES = { size: 80, paid: 22, price: 18 };
const GAP = 7;
const PART_COLOURS = ['system', 'tools', 'summary', 'user', 'assistant', 'tool', 'unrecorded'];
const SHORT = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

/* 12345 → 12.3K */
function shortFigure(number) {
  return SHORT.format(number);
}

/* 0.0123 → $0.0123, 12.3 → $12.30 */
function dollars(price) {
  if (price === null || price === undefined) return '–';
  return `$${price >= 1 || price === 0 ? price.toFixed(2) : price.toPrecision(3)}`;
}

class Chart {
  constructor(view, source) {
    this.view = view;
    this.source = source;
    this.canvas = el('canvas', { class: 'strip', role: 'img' });
    this.over = el('canvas', { class: 'strip over', 'aria-hidden': 'true' });
    this.box = el('div', { class: 'chart' }, this.canvas, this.over);
    this.width = 0;
    this.ranges = [];
    this.box.addEventListener('pointermove', (event) => this.pointed(event));
    this.box.addEventListener('pointerleave', () => view.tip.hide());
    this.box.addEventListener('pointerdown', (event) => this.pressed(event));
    new ResizeObserver(([{ contentRect }]) => this.resized(contentRect.width)).observe(this.box);
  }

  /* The heights of the lanes, lower where there is little room. */
  get lanes() {
    const double = this.view.log.sources.length > 1;
    const { size, paid, price } = innerWidth > 520 ? LANES : LOW_LANES;
    const top = double ? Math.round(size * 0.67) : size;
    const second = top + GAP;
    const third = second + paid + GAP;
    return { size: top, paid: second, paidHeight: paid, price: third, priceHeight: price, shown: third + price + 3, height: third + price + 3 + LANES.shown };
  }

  resized(width) {
    this.width = Math.floor(width);
    const slider = byId('slider');
    slider.style.marginLeft = `${this.left}px`;
    slider.style.width = `${2 * INSET + this.space * Math.max(1, this.view.log.steps.length - 1)}px`;
    this.draw();
  }

  /* The pixels for the figures at the left. */
  get left() {
    return innerWidth > 520 ? 58 : 44;
  }

  /* The pixels from one request to the next. */
  get space() {
    return Math.min(WIDEST, (this.width - this.left - 2 * INSET) / Math.max(1, this.view.log.steps.length - 1));
  }

  x(step) {
    return this.left + INSET + this.space * step;
  }

  stepAt(x) {
    return Math.max(0, Math.min(this.view.log.steps.length - 1, Math.round((x - this.left - INSET) / this.space)));
  }

  /* Draw everything that does not depend on the selection. */
  draw() {
    if (!this.width) return;
    const { lanes } = this;
    this.box.style.height = `${lanes.height}px`;
    const context = sized(this.canvas, this.width, lanes.height);
    const colours = this.view.colours();
    const top = this.view.top;
    context.fillStyle = colours.line;
    for (const y of [lanes.size, lanes.paid + lanes.paidHeight, lanes.price + lanes.priceHeight]) context.fillRect(this.left, y, this.width - this.left, 1);
    for (const column of this.columns()) this.column(context, column, colours, top);
    this.limit(context, colours, top);
    this.priceLine(context, colours);
    this.marks(context, colours);
    this.labels(context, colours);
    this.canvas.setAttribute('aria-label', this.describe());
    this.mark();
  }

  /* The bars: one for each step, or for each pixel the largest request there, and the one that paid the most. */
  columns() {
    const { space } = this;
    const { steps } = this.view.log;
    if (space >= 3) {
      const width = Math.max(2, Math.min(18, Math.floor(space) - 1));
      return Array.from(steps, (_, step) => ({ left: Math.round(this.x(step) - width / 2), width, request: this.source.at[step], dearest: this.source.at[step] }));
    }
    const columns = [];
    for (let step = 0; step < steps.length; step += 1) {
      const request = this.source.at[step];
      const left = Math.floor(this.x(step));
      const before = columns.at(-1);
      if (!before || before.left !== left) columns.push({ left, width: Math.max(1, Math.ceil(space)), request, dearest: request });
      else if (before.request < 0) Object.assign(before, { request, dearest: request });
      else {
        if (this.source.tokens[request] > this.source.tokens[before.request]) before.request = request;
        if (this.paid(request) > this.paid(before.dearest)) before.dearest = request;
      }
    }
    return columns;
  }

  /* The tokens of a request that were not cached. */
  paid(request) {
    return this.source.tokens[request] - this.source.cached[request];
  }

  column(context, { left, width, request, dearest }, colours, top) {
    if (request < 0) return;
    const { source, lanes } = this;
    let below = 0;
    source.parts.forEach((column, part) => {
      const tokens = column[request];
      if (!tokens) return;
      const [from, to] = [Math.round((below / top) * lanes.size), Math.round(((below + tokens) / top) * lanes.size)];
      context.fillStyle = colours.parts[part];
      context.fillRect(left, lanes.size - to, width, to - from);
      below += tokens;
    });
    const scale = lanes.paidHeight / this.view.most;
    const cached = Math.round(source.cached[dearest] * scale);
    const paid = Math.round(this.paid(dearest) * scale);
    context.fillStyle = colours.cached;
    context.fillRect(left, lanes.paid + lanes.paidHeight - cached, width, cached);
    context.fillStyle = colours.paid;
    context.fillRect(left, lanes.paid + lanes.paidHeight - cached - Math.max(paid, 1), width, Math.max(paid, 1));
  }

  limit(context, colours, top) {
    const { limit } = this.view.log;
    if (!limit || limit > top) return;
    const y = Math.round(this.lanes.size * (1 - limit / top)) + 0.5;
    context.strokeStyle = colours.no;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(this.left, y);
    context.lineTo(this.width, y);
    context.stroke();
    context.setLineDash([]);
  }

  priceLine(context, colours) {
    const { source, lanes } = this;
    const most = this.view.mostPrice;
    if (!most) return;
    const base = lanes.price + lanes.priceHeight;
    const y = (request) => base - (lanes.priceHeight - 2) * (source.cost[request] / most);
    context.beginPath();
    context.moveTo(this.x(0), base);
    let x = 0;
    for (let step = 0; step < source.at.length; step += 1) {
      const request = source.at[step];
      if (request < 0) continue;
      x = this.x(step);
      context.lineTo(x, y(request));
    }
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.stroke();
    context.lineTo(x, base);
    context.fillStyle = colours.chosen;
    context.globalCompositeOperation = 'destination-over';
    context.fill();
    context.globalCompositeOperation = 'source-over';
    context.lineWidth = 1;
  }

  /* A flag for each checkpoint. */
  marks(context, colours) {
    const { source, lanes } = this;
    let before = -10;
    for (const request of source.checkpoints) {
      const x = Math.round(this.x(stepOf(this.view.log, source, request))) + 0.5;
      if (x - before < 3) continue;
      before = x;
      context.strokeStyle = colours.summaryText;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, lanes.size);
      context.stroke();
      context.fillStyle = colours.summaryText;
      context.beginPath();
      context.moveTo(x - 4.5, 0);
      context.lineTo(x + 4.5, 0);
      context.lineTo(x, 7);
      context.fill();
    }
  }

  /* The figures at the left of the lanes. */
  labels(context, colours) {
    const { log, top, largest, mostPrice } = this.view;
    const { lanes, source } = this;
    context.font = '11px system-ui, sans-serif';
    context.textAlign = 'right';
    const write = (text, y, colour = colours.muted) => {
      context.fillStyle = colour;
      context.fillText(text, this.left - 4, y);
    };
    const yOf = (tokens) => Math.max(10, Math.min(lanes.size, lanes.size * (1 - tokens / top) + 4));
    if (log.limit && log.limit <= top) write(`limit ${shortFigure(log.limit)}`, yOf(log.limit), colours.no);
    if (!log.limit || log.limit > top || Math.abs(yOf(log.limit) - yOf(largest)) > 12) write(shortFigure(largest), yOf(largest));
    write('tokens', lanes.size - 1);
    write('paid', lanes.paid + 10);
    write('cached', lanes.paid + 22);
    if (mostPrice) write(dollars(source.price), lanes.price + 10);
  }

  describe() {
    const { source } = this;
    const most = source.tokens.reduce((largest, tokens) => Math.max(largest, tokens), 0);
    const price = source.price === null ? '' : `, ${dollars(source.price)} in total`;
    return `${source.name}: ${counted(source.count, 'request')}, the largest with ${counted(most, 'token')}, ${counted(source.checkpoints.length, 'checkpoint')}${price}`;
  }

  /* Mark the current step and the requests that show the selected message. */
  mark() {
    if (!this.width) return;
    const { lanes, view, source } = this;
    const context = sized(this.over, this.width, lanes.height);
    const colours = view.colours();
    context.fillStyle = colours.accent;
    for (const [from, to] of this.ranges) {
      const left = this.x(stepOf(view.log, source, from));
      const right = this.x(stepOf(view.log, source, to - 1));
      context.fillRect(Math.round(left - 1), lanes.shown, Math.max(2, Math.round(right - left) + 2), LANES.shown - 1);
    }
    const x = Math.round(this.x(view.step));
    context.fillRect(x - 1, 0, 2, lanes.height);
  }

  select(number) {
    this.ranges = number === null ? [] : requestsShowing(this.view.log, this.source, number);
    this.mark();
  }

  pointed(event) {
    const step = this.stepAt(event.offsetX);
    if (event.buttons & 1) this.view.go(step);
    this.view.tip.show(event, this.source, step);
  }

  pressed(event) {
    if (event.button !== 0) return;
    this.box.setPointerCapture(event.pointerId);
    this.view.go(this.stepAt(event.offsetX));
  }
}

/* The figures of the request under the pointer. */
class Tip {
  constructor(view) {
    this.view = view;
    this.box = byId('tip');
  }

  show(event, source, step) {
    const request = source.at[step];
    if (request < 0) return this.hide();
    const { log } = this.view;
    const parts = source.parts.map((column, part) => [log.parts[part], column[request]]).filter(([, tokens]) => tokens);
    this.box.replaceChildren(
      el('strong', {}, `Request ${figure(request + 1)}`),
      source.checkpoints.includes(request) ? ' · after a checkpoint' : '',
      el('p', {}, `${counted(source.tokens[request], 'token')}, ${figure(source.cached[request])} cached, ${dollars(source.cost[request])} so far`),
      el('p', { class: 'note' }, parts.map(([name, tokens]) => `${PART_TEXTS[name]} ${shortFigure(tokens)}`).join(' · ')),
      el('p', {}, shortReason(log, source, request)),
    );
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    this.box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
    this.box.style.top = `${Math.min(event.clientY + 18, innerHeight - height - 4)}px`;
    return undefined;
  }

  hide() {
    this.box.hidden = true;
  }
}
