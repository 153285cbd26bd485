// Markdown as nodes: marked's lexer says what is there, and each token becomes an element here. HTML in a reply is text.
import marked from '/web/marked.js';
import { el, button } from './dom.js';
import { codeTokens } from './highlight.js';
import { copyText } from './overlays.js';
import { cutFormulas, formula, FORMULA } from './math.js';

const LONGEST_MARKDOWN = 100_000; // characters; what is longer is shown as it is
const LONGEST_PARAGRAPH = 20_000;
const MOST_MARKS = 400; // in a paragraph: marked's time grows with their square
const LONGEST_SHOWN = 100_000; // of what is shown as it is, until all is asked for
const DEEPEST = 24; // quotes and lists in each other
const FENCED = /^ {0,3}(`{3,}|~{3,})[^\n`]*\n[\s\S]*?(?:^ {0,3}\1[`~]* *$|$(?![\s\S]))/gm;
const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: '\u00a0', '#39': "'" };
const SAFE_LINK = /^(https?:|mailto:)/i;

/** marked gives text escaped for HTML. @param {string} text */
function plain(text) {
  return text.replace(/&(#?\w+);/g, (whole, name) => ENTITIES[name] ?? whole);
}

/** Text with its formulas. @param {string} text @param {string[]} formulas @returns {(Node|string)[]} */
function textNodes(text, formulas) {
  return text.split(FORMULA).map((part, i) => (i % 2 === 0 ? part : formulas[Number(part)] ? formula(formulas[Number(part)]) : ''));
}

/** @param {any} token @param {Context} context */
function linkNode(token, context) {
  const href = plain(token.href ?? '').trim();
  const text = token.type === 'image' ? [plain(token.text) || href] : inline(token.tokens, context);
  if (!SAFE_LINK.test(href)) return el('span', { title: href }, ...text);
  return el('a', { href, rel: 'noopener noreferrer nofollow', target: '_blank', title: token.title ? plain(token.title) : null }, ...text);
}

/** @typedef {{formulas: string[], depth: number}} Context */

/** @param {any[]} tokens @param {Context} context @returns {(Node|string)[]} */
function inline(tokens, context) {
  return (tokens ?? []).flatMap((token) => {
    switch (token.type) {
      case 'strong': case 'em': case 'del':
        return el(token.type, {}, ...inline(token.tokens, context));
      case 'codespan':
        return el('code', { text: plain(token.text) });
      case 'br':
        return el('br');
      case 'link': case 'image':
        return linkNode(token, context);
      case 'text':
        return token.tokens ? inline(token.tokens, context) : textNodes(plain(token.text), context.formulas);
      case 'html':
        return token.raw;
      default:
        return textNodes(plain(token.text ?? token.raw), context.formulas);
    }
  });
}

/** @param {string} code @param {string} language */
export function codeBlock(code, language) {
  const body = el('code', {}, ...codeTokens(code, language).map(([kind, text]) => (kind ? el('span', { class: `t-${kind}`, text }) : text)));
  const copy = button('copy', 'Copy code', async () => {
    if (!await copyText(code)) return;
    copy.classList.add('is-done');
    setTimeout(() => copy.classList.remove('is-done'), 1200);
  });
  return el('figure', { class: 'code' },
    el('figcaption', {}, el('span', { text: language || 'text' }), copy),
    el('pre', { tabindex: '0', 'aria-label': `Code, ${language || 'text'}` }, body));
}

/** @param {any} token @param {Context} context */
function tableNode(token, context) {
  const cell = (tag) => (one, i) => el(tag, { class: token.align[i] ? `to-${token.align[i]}` : null }, ...inline(one.tokens, context));
  return el('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table' }, el('table', {},
    el('thead', {}, el('tr', {}, ...token.header.map(cell('th')))),
    el('tbody', {}, ...token.rows.map((row) => el('tr', {}, ...row.map(cell('td')))))));
}

/** @param {any} token @param {Context} context */
function listNode(token, context) {
  const items = token.items.map((item) => {
    const mark = item.task && el('input', { type: 'checkbox', checked: item.checked, disabled: true, 'aria-label': item.checked ? 'done' : 'to do' });
    return el('li', { class: item.task ? 'task' : null }, mark, ...blocks(item.tokens, context));
  });
  return el(token.ordered ? 'ol' : 'ul', { start: token.ordered && token.start !== 1 ? token.start : null }, ...items);
}

/** @param {any} token @param {Context} context @returns {Node|string|null} */
function block(token, context) {
  switch (token.type) {
    case 'space': case 'def':
      return null;
    case 'heading':
      return el(`h${Math.min(token.depth + 2, 6)}`, {}, ...inline(token.tokens, context));
    case 'hr':
      return el('hr');
    case 'code':
      return codeBlock(token.text, (token.lang ?? '').match(/^[\w+#.-]{1,24}/)?.[0] ?? '');
    case 'blockquote':
      return el('blockquote', {}, ...blocks(token.tokens, context));
    case 'list':
      return listNode(token, context);
    case 'table':
      return tableNode(token, context);
    case 'text': // of a tight list
      return el('span', {}, ...(token.tokens ? inline(token.tokens, context) : textNodes(plain(token.text), context.formulas)));
    case 'paragraph':
      return el('p', { dir: 'auto' }, ...inline(token.tokens, context));
    default: // HTML
      return el('p', { dir: 'auto', class: 'raw', text: token.raw });
  }
}

/** @param {any[]} tokens @param {Context} context @returns {(Node|string)[]} */
function blocks(tokens, context) {
  if (context.depth >= DEEPEST) return [tokens.map((token) => token.raw).join('')];
  const deeper = { ...context, depth: context.depth + 1 };
  return tokens.map((token) => block(token, deeper)).filter((node) => node !== null);
}

/** What is too long to be read as Markdown. @param {string} text */
export function plainBlock(text) {
  const pre = el('pre', { class: 'plain', dir: 'auto', tabindex: '0', 'aria-label': 'Text', text: text.slice(0, LONGEST_SHOWN) });
  if (text.length <= LONGEST_SHOWN) return pre;
  const rest = button('down', `Show all ${text.length.toLocaleString()} characters`, () => {
    pre.textContent = text;
    rest.remove();
  }, { text: true });
  return el('div', {}, pre, rest);
}

/** A fence that is not closed yet. @param {string} text */
function closed(text) {
  const open = [...text.matchAll(/^ {0,3}(`{3,}|~{3,})(.*)$/gm)].reduce((fence, [, marks, info]) => {
    if (fence === null) return marks;
    return marks[0] === fence[0] && marks.length >= fence.length && info.trim() === '' ? null : fence;
  }, null);
  return open === null ? text : `${text}\n${open}`;
}

/** Whether marked reads the text in a time that nobody notices. @param {string} text */
function isReadable(text) {
  if (text.length > LONGEST_MARKDOWN) return false;
  const prose = text.replace(FENCED, '');
  return prose.split(/\n\s*\n/).every((part) => part.length <= LONGEST_PARAGRAPH && (part.match(/[*_[<~`>\\]/g) ?? []).length <= MOST_MARKS);
}

/** @param {string} text @returns {{tokens: any[], formulas: string[]}} */
function lexed(text) {
  const { text: rest, formulas } = cutFormulas(text);
  return { tokens: marked.lexer(closed(rest), { gfm: true, mangle: false }), formulas };
}

/** Shows a text that grows: what stands before its last blocks stays as it is. */
export class MarkdownView {
  #settled = 0; // characters of the text whose nodes stay
  #loose = []; // nodes behind them
  #text = '';
  #isWhole = false;
  #isPlain = false; // shown as it is

  constructor() {
    this.node = el('div', { class: 'markdown' });
  }

  /** @param {string} text @param {boolean} isWhole: more will not come */
  set(text, isWhole) {
    if (text === this.#text && isWhole === this.#isWhole) return;
    if (isWhole && !this.#isWhole) this.#restart(); // what came later may belong to a block that was settled
    this.#isWhole = isWhole;
    if (!isReadable(text.slice(this.#settled)) || !this.#couldGrow(text)) {
      this.#restart();
      this.node.replaceChildren(plainBlock(text));
      this.#isPlain = true;
    }
    this.#text = text;
  }

  #restart() {
    this.#isPlain = false;
    this.#settled = 0;
    this.#loose = [];
    this.node.replaceChildren();
  }

  /** False: marked gave up, on what lies in itself thousands of times. @param {string} text */
  #couldGrow(text) {
    try {
      this.#grow(text);
      return true;
    } catch (error) {
      if (error instanceof RangeError) return false;
      throw error;
    }
  }

  /** @param {string} text */
  #grow(text) {
    if (this.#isPlain || !text.startsWith(this.#text.slice(0, this.#settled))) this.#restart();
    const { tokens, formulas } = lexed(text.slice(this.#settled));
    const context = { formulas, depth: 0 };
    // Where formulas were cut out, or marked writes tabs and line ends its own way, lengths are not those of the text.
    const isMeasured = formulas.length === 0 && !/[\r\t]/.test(text);
    let n = isMeasured ? Math.max(0, tokens.length - 2) : 0;
    while (n > 0 && (tokens[n - 1].type === 'list' || tokens[n - 1].type === 'space')) n--; // the list may go on
    const fixed = tokens.slice(0, n);
    for (const node of this.#loose) node.remove();
    this.node.append(...blocks(fixed, context));
    this.#settled += fixed.reduce((length, token) => length + token.raw.length, 0);
    this.#loose = blocks(tokens.slice(n), context);
    this.node.append(...this.#loose);
  }
}
