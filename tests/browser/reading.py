"""JavaScript for tests of the trace page, which reads what a user would see."""

from __future__ import annotations

__all__ = ["ANSWERS", "CONTRASTS", "OUTSIDE", "READ", "SLIDE"]

# For each budget its state, the kept items and the sent messages; for each element its path and the
# budgets that keep it; the next budgets.
ANSWERS = """([data, budgets]) => {
  const record = openRecord(data);
  const answer = (budget) => {
    const state = stateAt(record, budget);
    return state === null ? null : { state, kept: keptIds(record, state), messages: messagesAt(record, state) };
  };
  const paths = Array.from({ length: record.count }, (_, id) => pathOf(record, id));
  const spans = paths.map((_, id) => budgetsOf(record, id));
  const next = budgets.map((budget) => [nextBudget(record, budget, false), nextBudget(record, budget, true)]);
  return JSON.stringify({ answers: budgets.map(answer), paths, spans, next });
}"""

# Drags the slider to a budget.
SLIDE = """(budget) => {
  const slider = document.getElementById('slider');
  slider.value = budget;
  slider.dispatchEvent(new Event('input', { bubbles: true }));
  return Number(slider.value);
}"""

# Reads everything that a user would by scrolling through the page.
READ = """() => {
  const sweep = (id, read) => {
    const box = document.getElementById(id);
    const found = new Map();
    box.scrollTop = 0;
    for (let top = -1; box.scrollTop !== top; ) {
      top = box.scrollTop;
      box.dispatchEvent(new Event('scroll'));
      for (const row of box.querySelectorAll('[data-id]:not(canvas)')) if (row.getAttribute('role') || row.tagName === 'ARTICLE') found.set(Number(row.dataset.id), read(row));
      box.scrollTop = top + box.clientHeight;
    }
    return [...found].sort(([one], [other]) => one - other);
  };
  const texts = (row, what) => [...row.querySelectorAll(what)].map((each) => each.textContent);
  // The arguments of a call, from its JSON, its blocks of text, and the lines of its edits.
  const args = (call) => {
    const [inline] = texts(call, 'code');
    const blocks = [...call.querySelectorAll('.argument')];
    if (!blocks.length) return inline;
    const values = JSON.parse(inline || '{}');
    for (const block of blocks) {
      const lines = (kinds) => [...block.querySelectorAll('.edit > div')].filter((line) => kinds.includes(line.className)).map((line) => line.lastChild.textContent).join('\\n');
      if (block.querySelector('.edit')) Object.assign(values, { old: lines(['same', 'removed']), new: lines(['same', 'added']) });
      else values[texts(block, '.of')[0]] = texts(block, '.text')[0];
    }
    return JSON.stringify(values);
  };
  const message = (row) => ({
    role: row.querySelector('header .role').textContent,
    of: texts(row, 'header .of'),
    content: [...row.querySelectorAll(':scope > .text, :scope > .part, :scope > .gone .part, :scope > .gone.part, :scope > .kind-box')].reduce((found, each) => {
      if (each.classList.contains('joined')) found.at(-1)[1] += each.textContent;
      else if (each.matches('.kind-box')) found.push(['part', texts(each, '.kind-chip')[0]]);
      else found.push([each.className.split(' ')[0], each.textContent]);
      return found;
    }, []),
    calls: [...row.querySelectorAll('.call')].map((each) => [texts(each, ':scope > .of')[0], texts(each, '.function')[0], args(each)]),
  });
  if (document.getElementById('dropped').getAttribute('aria-pressed') === 'false') document.getElementById('dropped').click();
  const rows = sweep('tree', (row) => row.dataset.kept === 'yes');
  return JSON.stringify({
    rows: rows.length,
    kept: rows.filter(([, kept]) => kept).map(([id]) => id),
    messages: sweep('messages', message).map(([, content]) => content),
    fit: document.getElementById('fit').textContent,
    taken: document.getElementById('count-removals').textContent,
  });
}"""

# Texts whose contrast with their background is below 4.5 to 1 (WCAG AA), as colours; what is
# disabled is exempt.
CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const low = new Set();
  for (const element of document.querySelectorAll('body *')) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!says || !element.getClientRects().length || element.disabled) continue;
    const [one, other] = [light(rgba(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) low.add(`${element.tagName} ${element.className}: ${element.textContent.slice(0, 40)}`);
  }
  return [...low];
}"""

# Elements that overflow their row, card or panel, or overlap their neighbour.
OUTSIDE = """() => {
  const found = new Set();
  for (const box of document.querySelectorAll('.top > div, .views, .tools, .row, .removal, .message, .message > header, .line, #detail, #detail > *')) {
    const edge = box.getBoundingClientRect();
    let end = { right: -1, bottom: 0 };
    for (const child of box.children) {
      const { left, right, top, bottom, width } = child.getBoundingClientRect();
      if (!width || child.classList.contains('unseen')) continue;
      const over = left < end.right - 1 && top < end.bottom - 1 && bottom > end.top + 1;
      if (left < edge.left - 1 || right > edge.right + 1 || over) found.add(`${box.className || box.id}: ${child.className || child.id}`);
      end = { right, top, bottom };
    }
  }
  return [...found];
}"""
