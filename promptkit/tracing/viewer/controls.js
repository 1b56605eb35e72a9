/*
 * The budget: a slider, a number, and the resulting use of tokens.
 */

class Controls {
  constructor(view) {
    this.view = view;
    this.slider = byId('slider');
    this.number = byId('budget');
    this.reset = byId('reset');
    const full = fullBudget(view.record);
    const { budget } = view.record;
    this.slider.max = Math.max(1, budget > full && budget <= full * 1.5 ? budget : Math.ceil(full * 1.02));
    this.slider.addEventListener('input', () => view.go(Number(this.slider.value)));
    this.number.addEventListener('input', () => {
      if (this.number.value !== '' && this.number.validity.valid) view.go(Number(this.number.value));
    });
    this.number.addEventListener('blur', () => this.update());
    this.reset.addEventListener('click', () => view.reset());
    byId('title').textContent = view.record.title;
    byId('about').textContent = [view.record.model, view.record.tokenizer].filter(Boolean).join(' · ');
  }

  update() {
    const { view, slider, number, reset } = this;
    const { record, budget } = view;
    if (document.activeElement !== number || Number(number.value) !== budget) number.value = budget;
    slider.value = budget;
    slider.setAttribute('aria-valuetext', `${counted(budget, 'token')}: ${view.fits ? 'fits' : 'does not fit'}`);
    slider.style.setProperty('--at', `${(100 * Math.min(1, budget / Number(slider.max))).toFixed(3)}%`);
    reset.textContent = `As rendered: ${figure(record.budget)}`;
    reset.disabled = view.asRendered;
    byId('fit').replaceChildren(...this.fit());
    byId('facts').textContent = this.facts();
  }

  fit() {
    const { record, state, budget, fits, needed } = this.view;
    if (!fits) {
      const lacking = needed === null ? '' : ` At least ${counted(needed, 'token')} are needed, ${figure(needed - budget)} more.`;
      return [el('strong', { class: 'no' }, '✕ Does not fit.'), lacking];
    }
    const used = record.counts[state];
    return [el('strong', { class: 'yes' }, '✓ Fits.'), ` ${figure(used)} of ${counted(budget, 'token')} used`];
  }

  facts() {
    const { record, state, budget, fits, asRendered } = this.view;
    if (!fits) return '';
    const free = budget - record.reserved - record.counts[state];
    const facts = [
      record.reserved ? `${figure(record.reserved)} reserved` : '',
      `${figure(free)} left`,
      state === 0 ? 'nothing removed' : `step ${figure(state)} of ${figure(lastState(record))}`,
      record.pruneStep ? `pruned in steps of ${counted(record.pruneStep, 'token')}` : '',
      asRendered && stateAt(record, budget) !== state ? 'elements dropped in an earlier turn stay dropped' : '',
    ];
    return facts.filter(Boolean).join(' · ');
  }
}
