/*
 * The head of the page: it folds to its figures while a reader scrolls down through messages. And the page as it is printed.
 */

const FOLDS = 48; // pixels that a reader scrolls down before the head folds
const UNFOLDS = -200; // and up before it unfolds

class Head {
  constructor(view) {
    this.view = view;
    this.by = 0; // pixels that were scrolled in one direction
    byId('unfold').addEventListener('click', () => this.fold(false));
  }

  scrolled(by) {
    if (this.view.printing || Math.abs(by) < 1) return;
    if (this.by * by < 0) this.by = 0;
    this.by += by;
    const folded = document.body.classList.contains('folded');
    if (folded ? this.by < UNFOLDS : this.by > FOLDS) this.fold(!folded);
  }

  /* The messages stay where they are on the screen. */
  fold(on) {
    this.by = 0;
    const box = document.querySelector('.top');
    const before = box.offsetHeight;
    document.body.classList.toggle('folded', on);
    const lower = before - box.offsetHeight;
    for (const { list } of this.view.lists) {
      list.resized();
      list.scrollTo(list.top - lower);
      list.draw(false);
    }
    for (const chart of this.view.charts) chart.draw();
  }
}

/* Put all messages of the request into the document while it is printed, in full and in light colours. */
function wirePrint(view) {
  matchMedia('print').addEventListener('change', ({ matches }) => {
    view.printing = matches;
    const root = document.documentElement;
    if (matches) [view.theme, root.dataset.theme] = [root.dataset.theme, 'light'];
    else if (view.theme) root.dataset.theme = view.theme;
    else delete root.dataset.theme;
    view.recolour();
    for (const { list } of view.lists) {
      list.whole = matches;
      list.draw(true);
    }
  });
}
