/*
 * Creates elements. Content of a prompt is inserted as text, never as markup.
 */

/* Creates an element with attributes and children. A string child becomes text; null and false are skipped. */
function el(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'onclick') element.addEventListener('click', value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

const FIGURES = new Intl.NumberFormat('en-US');

/* 12345 → 12,345 */
function figure(number) {
  return FIGURES.format(number);
}

function counted(number, noun, nouns = `${noun}s`) {
  return `${figure(number)} ${number === 1 ? noun : nouns}`;
}

function priorityText(priority) {
  if (priority >= HIGHEST) return '–';
  return priority <= -Number.MAX_VALUE ? '−∞' : figure(priority);
}

/* Formats seconds: 0.0000123 → 12 µs. */
function duration(seconds) {
  const [value, unit] = seconds >= 1 ? [seconds, 's'] : seconds >= 0.001 ? [seconds * 1e3, 'ms'] : [seconds * 1e6, 'µs'];
  return `${value >= 100 ? figure(Math.round(value)) : value.toPrecision(2)} ${unit}`;
}

/* The beginning of a text on one line. */
function firstWords(text, most) {
  return text.slice(0, most * 2).replace(/\s+/g, ' ').trim().slice(0, most);
}

/* The description of a part other than text. */
function partText(part) {
  const { kind, ...facts } = part;
  const shown = Object.entries(facts).map(([name, value]) => {
    if (name === 'bytes') return counted(value, 'byte');
    return name === 'sha256' ? `sha256 ${value}…` : String(value);
  });
  return [kind, ...shown].join(' · ');
}

/* Set the size of a canvas in page pixels, sharp on every screen. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  return context;
}
