// The server while it works, for who may ask: how many conversations each step computes, what waits, how full the memory is.
import { el, svg, button, icon } from './dom.js';
import { unary } from './connect.js';
import { hasKey } from './key.js';

const SAMPLE_MS = 400;
const COLUMNS = 90; // looks that the chart holds

/** @param {number} bytes */
function sized(bytes) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let at = 0;
  let n = bytes;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at++;
  }
  return `${n.toLocaleString(undefined, { maximumSignificantDigits: 3 })} ${units[at]}`;
}

/** @param {number} ms */
function lasted(ms) {
  const minutes = Math.floor(ms / 60000);
  if (minutes < 60) return `${minutes} min`;
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} days`;
}

export class BatchView {
  #timer = 0;
  #seen = []; // {at, steps, rows}
  #columns = []; // rows in a step, a column a look
  #drawn = null; // elements by what they show

  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.node = el('div', { class: 'panel-body' });
  }

  start() {
    if (this.#timer !== 0) return;
    const look = async () => {
      try {
        if (!document.hidden) this.#draw(await unary('Admin/Status'));
      } catch (error) {
        this.#refused(error);
        return;
      }
      this.#timer = setTimeout(look, SAMPLE_MS);
    };
    this.#timer = setTimeout(look);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#columns = [];
    this.#seen = [];
    this.#drawn = null;
  }

  /** @param {any} error */
  #refused(error) {
    this.#timer = 0;
    this.#drawn = null;
    const text = error.code === 'permission_denied' || error.code === 'unauthenticated' || error.code === 'unimplemented'
      ? 'Only administrators see the server at work. Use a key with the role admin.' : error.message;
    this.node.replaceChildren(el('div', { class: 'panel-empty' }, icon('key'), el('p', { text }),
      hasKey() && button('key', 'Use another key', () => this.app.changeKey(), { text: true })));
  }

  #frame() {
    const shown = {};
    const figure = (name, label) => {
      shown[name] = el('dd');
      return el('div', { class: 'figure' }, el('dt', { text: label }), shown[name]);
    };
    shown.chart = svg('svg', { viewBox: `0 0 ${COLUMNS} 40`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'Conversations in each step' });
    shown.scale = el('span', { class: 'small muted' });
    shown.pages = el('div', { class: 'bar', role: 'img' });
    shown.pagesText = el('p', { class: 'hint' });
    shown.models = el('div', { class: 'form' });
    this.node.replaceChildren(
      el('dl', { class: 'figures' }, figure('rows', 'conversations in a step'), figure('speed', 'rows a second'),
        figure('waiting', 'requests waiting'), figure('turns', 'turns since the start'),
        figure('open', 'open conversations'), figure('memory', 'memory of the process')),
      el('div', { class: 'chart' }, el('div', { class: 'dialog-head' }, el('h2', { class: 'section-title grow', text: 'The batch, now' }), shown.scale), shown.chart),
      el('div', { class: 'chart' }, el('h2', { class: 'section-title', text: 'KV-cache blocks' }), shown.pages, shown.pagesText),
      shown.models);
    return shown;
  }

  /** @param {any} status */
  #draw(status) {
    this.#drawn ??= this.#frame();
    const models = status.models ?? [];
    const sum = (of) => models.reduce((n, model) => n + Number(of(model) ?? 0), 0);
    const now = { at: performance.now(), steps: sum((m) => m.batching?.steps), rows: sum((m) => m.batching?.rows) };
    const before = this.#seen.at(-1) ?? now;
    this.#seen = [...this.#seen.slice(-4), now];
    const first = this.#seen[0];
    const seconds = (now.at - first.at) / 1000;
    const rows = now.steps > before.steps ? (now.rows - before.rows) / (now.steps - before.steps) : 0;
    this.#columns = [...this.#columns.slice(1 - COLUMNS), rows];
    const set = (name, text) => { this.#drawn[name].textContent = text; };
    set('rows', rows.toLocaleString(undefined, { maximumFractionDigits: 1 }));
    set('speed', seconds > 0 ? Math.round((now.rows - first.rows) / seconds).toLocaleString() : '0');
    set('waiting', sum((m) => m.batching?.waiting).toLocaleString());
    set('turns', Number(status.turns ?? 0).toLocaleString());
    set('open', (status.conversations ?? 0).toLocaleString());
    set('memory', sized(Number(status.rssBytes ?? 0)));
    this.#drawChart();
    this.#drawPages(sum((m) => m.kvPages), sum((m) => m.kvPagesFree), sum((m) => m.kvPagesShared));
    this.#drawModels(status, models);
  }

  #drawChart() {
    const top = Math.max(1, ...this.#columns);
    this.#drawn.scale.textContent = `up to ${top.toLocaleString(undefined, { maximumFractionDigits: 1 })}`;
    const start = COLUMNS - this.#columns.length;
    this.#drawn.chart.replaceChildren(...this.#columns.map((rows, i) => {
      const height = rows === 0 ? 0.6 : Math.max(1.5, (38 * rows) / top);
      return svg('rect', { x: start + i + 0.12, y: 40 - height, width: 0.76, height, opacity: rows === 0 ? 0.25 : 1 });
    }));
  }

  /** @param {number} all @param {number} free @param {number} shared */
  #drawPages(all, free, shared) {
    const used = all - free;
    const part = (n) => {
      const span = el('span');
      span.style.width = `${all > 0 ? (100 * n) / all : 0}%`;
      return span;
    };
    this.#drawn.pages.replaceChildren(part(shared), part(used - shared));
    const text = `${used.toLocaleString()} of ${all.toLocaleString()} in use, ${shared.toLocaleString()} of them by several conversations`;
    this.#drawn.pages.setAttribute('aria-label', text);
    this.#drawn.pagesText.textContent = `${text}.`;
  }

  /** @param {any} status @param {any[]} models */
  #drawModels(status, models) {
    const rows = models.map((model) => el('div', { class: 'field' }, el('span', { class: 'label' }, el('span', { class: `dot ${dotOf(model)}` }), model.name),
      el('p', { class: 'hint', text: [model.architecture, model.backend, model.weightBytes && sized(Number(model.weightBytes)), `${model.conversations ?? 0} open`, model.error].filter(Boolean).join(' · ') })));
    this.#drawn.models.replaceChildren(...rows, el('p', { class: 'hint', text: `parleyd ${status.version}, for ${lasted(Number(status.uptimeMs ?? 0))}` }));
  }
}

/** The mark of a model's state. @param {any} model */
export function dotOf(model) {
  return { MODEL_STATE_READY: 'ready', MODEL_STATE_LOADING: 'busy', MODEL_STATE_UNLOADING: 'busy', MODEL_STATE_FAILED: 'failed' }[model.state] ?? '';
}
