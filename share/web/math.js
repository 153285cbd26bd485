// Formulas: cut out before Markdown is read, which takes backslashes away, and drawn as MathML by KaTeX, which is fetched when
// the first formula appears.
import { el } from './dom.js';

const CODE = /(```[\s\S]*?(?:```|$)|~~~[\s\S]*?(?:~~~|$)|`[^`\n]*`)/;
const MATH = /\$\$[^$]{1,2000}?\$\$|\\\[[\s\S]{1,2000}?\\\]|\\\([^\n]{1,500}?\\\)|(?<![\w$\\])\$(?![\s\d$])[^$\n]{1,200}?(?<![\s\\])\$(?![\w$])/g;

/** Where a formula was: its index between two characters that no text of ours has. */
export const FORMULA = /\uE000(\d+)\uE001/;

/** @param {string} text @returns {{text: string, formulas: string[]}} */
export function cutFormulas(text) {
  const formulas = [];
  const parts = text.split(CODE).map((part, i) => (i % 2 === 1 ? part : part.replace(MATH, (source) => {
    formulas.push(source);
    return `\uE000${formulas.length - 1}\uE001`;
  })));
  return { text: parts.join(''), formulas };
}

let katex = null;

/** @param {string} source with its delimiters */
export function formula(source) {
  const isDisplay = source.startsWith('$$') || source.startsWith('\\[');
  const wide = isDisplay || source.startsWith('\\(') ? 2 : 1;
  const node = el('span', { class: isDisplay ? 'math display' : 'math', text: source });
  katex ??= import('/web/katex.js').then((module) => module.default);
  katex.then((k) => k.render(source.slice(wide, -wide), node, {
    displayMode: isDisplay, output: 'mathml', throwOnError: true, maxExpand: 200, maxSize: 20, strict: 'ignore',
  })).catch(() => {
    node.textContent = source;
  });
  return node;
}
