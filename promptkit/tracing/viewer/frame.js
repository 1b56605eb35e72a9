/*
 * The frame of a page: its theme, and the tabs of its views.
 */

const THEMES = ['auto', 'light', 'dark'];

/* Let the button change between light, dark and the setting of the system. `redraw` draws what has colours of its own. */
function wireTheme(redraw) {
  const button = byId('theme');
  const set = (theme) => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
    redraw();
  };
  button.addEventListener('click', () => set(THEMES[(THEMES.indexOf(button.dataset.theme) + 1) % THEMES.length]));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => set(button.dataset.theme));
  set('auto');
}

/* Shows one view in a narrow window; a wide window shows the views whose tabs are marked `data-beside` beside the other views. */
function showTab(name) {
  document.body.dataset.tab = name;
  const wide = matchMedia('(min-width: 1000px)').matches;
  for (const tab of document.querySelectorAll('[role=tab]')) {
    const on = tab.id === `tab-${name}` || (wide && tab.dataset.beside !== undefined);
    tab.setAttribute('aria-selected', String(tab.id === `tab-${name}`));
    tab.tabIndex = tab.id === `tab-${name}` ? 0 : -1;
    byId(tab.getAttribute('aria-controls')).hidden = !on;
  }
}

/* Wire the tabs. `first` is the view that a wide window opens with, beside those that it always shows; a narrow one opens with the first. */
function wireTabs(first) {
  const tabs = [...document.querySelectorAll('[role=tab]')];
  const name = (tab) => tab.id.slice('tab-'.length);
  const there = () => tabs.filter((tab) => tab.offsetParent !== null);
  for (const tab of tabs) {
    tab.addEventListener('click', () => showTab(name(tab)));
    tab.addEventListener('keydown', (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const others = there();
      const next = others[(others.indexOf(tab) + by + others.length) % others.length];
      showTab(name(next));
      next.focus();
    });
  }
  const wide = matchMedia('(min-width: 1000px)');
  const beside = () => byId(`tab-${document.body.dataset.tab}`).dataset.beside !== undefined;
  const fit = () => showTab(wide.matches && beside() ? first : document.body.dataset.tab);
  wide.addEventListener('change', fit);
  document.body.dataset.tab = wide.matches ? first : name(tabs[0]);
  fit();
}
