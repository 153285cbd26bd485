// One turn: what was asked, and the reply, whether it is complete or still comes.
import { el, button, icon } from './dom.js';
import { MarkdownView, plainBlock } from './markdown.js';
import { copyText, sentence } from './overlays.js';

const LONG_TEXT = 1500; // characters of a message that scrolls in itself
const HUGE_TEXT = 100_000; // of one that is shown in part
const LONG_CARD = 600; // characters of a call or a result that scrolls in itself
const SURE_S = 0.5; // after which a rate says something
const THINK = /^\s*<think>([\s\S]*?)(?:<\/think>\s*|$)/;

const ENDINGS = {
  FINISH_REASON_LENGTH: 'Ended at the limit of tokens.',
  FINISH_REASON_CANCELLED: 'Stopped.',
  FINISH_REASON_DEADLINE: 'Ended at its deadline.',
  FINISH_REASON_ERROR: 'Ended by an error of the server.',
  FINISH_REASON_WORKER_LOST: 'Ended: the worker that computed it was lost.',
};

/** @param {number} us */
const seconds = (us) => (us < 995_000 ? `${Math.max(1, Math.round(us / 1000))} ms` : `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`);

/** @param {number} rate tokens a second */
const speed = (rate) => `${rate < 100 ? rate.toFixed(1) : Math.round(rate).toLocaleString()} tokens/s`;

/** What a turn took, as texts. @param {any} usage @param {any} timings */
export function statsOf(usage, timings) {
  const out = [];
  const tokens = usage?.completionTokens ?? 0;
  if (timings && tokens > 1 && Number(timings.decodeUs) > 0) out.push(speed((tokens - 1) / (Number(timings.decodeUs) / 1e6)));
  if (timings && tokens > 0) out.push(`first after ${seconds(Number(timings.queueUs ?? 0) + Number(timings.prefillUs ?? 0))}`);
  if (tokens > 0) out.push(`${tokens.toLocaleString()} tokens`);
  if (usage?.cachedTokens > 0) out.push(`${usage.cachedTokens.toLocaleString()} of ${usage.promptTokens.toLocaleString()} read from cache`);
  return out;
}

/** Reasoning and text of a stored reply. @param {string} reply */
export function dividedReply(reply) {
  const match = THINK.exec(reply);
  return match ? { reasoning: match[1].trim(), text: reply.slice(match[0].length) } : { reasoning: '', text: reply };
}

/** A reply with its reasoning apart, where the server left it in the text. @param {{text: string, reasoning: string, calls: any[]}} reply */
function whole(reply) {
  return reply.reasoning === '' ? { calls: reply.calls, ...dividedReply(reply.text) } : reply;
}

/** The reply of a complete turn: its message has the parts, where there are any besides the text. @param {any} turn */
function storedReply({ reply = '', message }) {
  if (!message) return { text: reply, reasoning: '', calls: [] };
  return { text: message.text ?? '', reasoning: message.reasoning ?? '', calls: message.toolCalls ?? [] };
}

/** What a turn has taken so far, as this page sees it. @param {any} run */
function liveStats({ reply, firstAt, firstTokens }) {
  const passed = (performance.now() - firstAt) / 1000;
  const rate = (reply.tokens - firstTokens) / passed;
  return [passed > SURE_S && rate > 0 && speed(rate), reply.tokens > 0 && `${reply.tokens.toLocaleString()} tokens`].filter(Boolean);
}

/** @param {string} json */
function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** What a tool is asked, or what it returned. @param {string} label @param {string} name @param {string} json @param {...Node} more */
function toolCard(label, name, json, ...more) {
  const text = pretty(json);
  return el('section', { class: 'card', 'aria-label': `${label} ${name}` },
    el('div', { class: 'card-head' }, icon(label === 'Call of' ? 'tool' : 'check'), el('span', { class: 'muted', text: label }), el('code', { text: name })),
    el('div', { class: 'card-body' }, text.trim() !== '' && text !== '{}' && el('pre', { text, tabindex: text.length > LONG_CARD ? '0' : null }), ...more));
}

export class TurnView {
  #markdown = new MarkdownView();
  #key = ''; // of what is drawn around the text
  #drawn = null; // the complete turn that is drawn, and all else that set was given
  #cardsKey = '[]'; // of the calls: what is typed as their results stays

  /** @param {number} turn @param {any} app */
  constructor(turn, app) {
    this.turn = turn;
    this.app = app;
    this.question = el('div', { class: 'user' });
    this.thoughts = el('div', { class: 'inside' });
    this.reasoning = el('details', { class: 'reasoning', hidden: true }, el('summary', { text: 'Reasoning' }), this.thoughts);
    this.cards = el('div', { class: 'cards' });
    this.notes = el('div');
    this.foot = el('div', { class: 'acts' });
    this.stats = el('span', { class: 'stats' });
    this.answer = el('div', { class: 'assistant' }, this.reasoning, this.#markdown.node, this.cards, this.notes, this.foot);
    this.node = el('article', { class: 'turn', 'aria-label': `Turn ${turn}`, tabindex: '-1', data: { turn } }, this.question, this.answer);
  }

  /**
   * @param {{messages: any[], reply: string, finishReason?: string, usage?: any}} turn
   * @param {import('./turn_run.js').TurnRun|null} run while it computes this turn
   * @param {{index: number, count: number}} place among the versions of this turn
   * @param {boolean} isLast
   */
  set(turn, run, place, isLast) {
    const drawn = run === null ? { turn, index: place.index, count: place.count, isLast } : null;
    if (drawn !== null && this.#key !== '' && this.#drawn !== null && Object.keys(drawn).every((name) => drawn[name] === this.#drawn[name])) return;
    this.#drawn = drawn;
    const reply = whole(run?.reply ?? storedReply(turn));
    this.#markdown.set(reply.text, run === null || run.isOver);
    this.reasoning.hidden = reply.reasoning === '';
    if (this.thoughts.textContent !== reply.reasoning) this.thoughts.textContent = reply.reasoning;
    if (run?.state === 'writing') this.#showStats(liveStats(run), true);
    const key = JSON.stringify([run?.state, run?.error?.message, run?.progress, place, isLast, turn.finishReason, turn.usage, turn.timings,
      reply.calls, turn.messages, run !== null && reply.text === '', Boolean(run?.joinedAt)]);
    if (key === this.#key) return;
    this.#key = key;
    this.#drawQuestion(turn, run, place);
    this.#drawCards(reply.calls, isLast && run === null);
    this.notes.replaceChildren(...this.#notes(turn, run, reply));
    this.foot.replaceChildren(...this.#acts(turn, run, reply), this.stats);
    if (!run) this.#showStats(statsOf(turn.usage, turn.timings));
  }

  /** @param {string[]} texts @param {boolean} [isLive] */
  #showStats(texts, isLive = false) {
    this.stats.classList.toggle('is-live', isLive);
    this.stats.replaceChildren(...texts.map((text) => el('span', { text })));
  }

  /** @param {any} turn @param {any} run @param {{index: number, count: number}} place */
  #drawQuestion(turn, run, place) {
    const bubbles = (turn.messages ?? []).map((message) => {
      const text = message.text ?? '';
      if (message.role === 'tool') return toolCard('Result of', message.name || 'a tool', text);
      const body = text.length > HUGE_TEXT ? plainBlock(text) : text;
      const note = message.role && message.role !== 'user' ? message.role : null;
      const calls = (message.toolCalls ?? []).map((call) => toolCard('Call of', call.name, call.arguments ?? ''));
      return [note && el('span', { class: 'role-note', text: note }), ...calls,
        text !== '' && el('div', { class: `user-text${text.length > LONG_TEXT ? ' is-long' : ''}`, dir: 'auto', tabindex: text.length > LONG_TEXT ? '0' : null }, body)];
    }).flat();
    const text = turn.messages?.at(-1)?.text ?? '';
    const isReady = !run || run.isOver;
    this.question.replaceChildren(...bubbles.filter(Boolean), el('div', { class: 'acts' },
      ...this.#siblings(place),
      isReady && text && button('edit', 'Edit and send again', () => this.#edit(text)),
      text && button('copy', 'Copy the message', () => copyText(text))));
  }

  /** @param {{index: number, count: number}} place */
  #siblings({ index, count }) {
    if (count < 2) return [];
    return [el('span', { class: 'siblings', role: 'group', 'aria-label': 'Versions of this turn' },
      button('left', 'Previous version', () => this.app.toSibling(this.turn, -1), { attrs: { disabled: index === 0 } }),
      el('span', { text: `${index + 1} / ${count}` }),
      button('right', 'Next version', () => this.app.toSibling(this.turn, 1), { attrs: { disabled: index === count - 1 } }))];
  }

  /** Lets the message be changed where it stands. @param {string} text */
  #edit(text) {
    const input = el('textarea', { rows: String(Math.min(12, text.split('\n').length + 1)), 'aria-label': 'The message', value: text });
    const end = () => {
      this.#key = '';
      this.app.drawThread();
      this.node.querySelector('.user .ghost')?.focus();
    };
    const send = () => {
      if (input.value.trim() !== '') this.app.edit(this.turn, input.value);
    };
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { event.stopPropagation(); end(); }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    this.question.replaceChildren(el('form', { class: 'card card-body', on: { submit: (event) => { event.preventDefault(); send(); } } },
      input, el('p', { class: 'hint', text: 'The changed message begins a branch. This one stays.' }),
      el('div', { class: 'dialog-end' }, el('button', { type: 'button', class: 'button', text: 'Cancel', on: { click: end } }),
        el('button', { class: 'button primary', text: 'Send' }))));
    this.question.firstChild.style.width = '100%';
    input.focus();
    input.setSelectionRange(text.length, text.length);
  }

  /** @param {any[]} calls @param {boolean} isAnswerable */
  #drawCards(calls, isAnswerable) {
    const key = calls.length === 0 ? '[]' : JSON.stringify([calls, isAnswerable]);
    if (key === this.#cardsKey) return;
    this.#cardsKey = key;
    this.cards.replaceChildren(...this.#callCards(calls, isAnswerable));
  }

  /** @param {any[]} calls @param {boolean} isAnswerable */
  #callCards(calls, isAnswerable) {
    const results = new Map();
    const cards = calls.map((call) => {
      const result = isAnswerable && el('textarea', { rows: '2', class: 'code-input', 'aria-label': `Result of ${call.name}`, placeholder: 'What the tool returned' });
      results.set(call, result);
      return toolCard('Call of', call.name, call.arguments, result);
    });
    if (calls.length === 0 || !isAnswerable) return cards;
    const send = () => this.app.send(calls.map((call) => ({ role: 'tool', name: call.name, toolCallId: call.id, text: results.get(call).value })));
    return [...cards, button('send', calls.length === 1 ? 'Send the result' : 'Send the results', send, { text: true, class: 'button primary' })];
  }

  /** @param {any} turn @param {any} run @param {any} reply */
  #notes(turn, run, reply) {
    if (run?.state === 'failed') {
      return [el('div', { class: 'failure', role: 'alert' }, el('span', { class: 'grow', text: sentence(run.error.message) }),
        button('retry', 'Send again', () => this.app.resend(), { text: true }))];
    }
    if (run?.state === 'lost') {
      return [el('div', { class: 'lost', role: 'status' }, el('span', { class: 'caret' }),
        el('span', { text: run.error.details?.length > 0 ? `${sentence(run.error.message)} Trying again.`
          : 'The connection is lost. The reply goes on where it was as soon as the server answers.' }))];
    }
    if (run && !run.isOver && reply.text === '' && reply.calls.length === 0) {
      const read = run.progress && run.progress.total > 0 ? `Reading ${Math.round((100 * (run.progress.done ?? 0)) / run.progress.total)} %` : reply.reasoning ? 'Thinking' : 'Reading';
      return [el('div', { class: 'waiting' }, el('span', { class: 'caret' }), el('span', { text: run.accepted ? read : 'Waiting' }))];
    }
    if (run && !run.isOver) return [el('span', { class: 'caret', 'aria-hidden': 'true' })];
    const ending = ENDINGS[turn.finishReason];
    return ending ? [el('p', { class: 'ended', text: ending })] : [];
  }

  /** @param {any} turn @param {any} run @param {any} reply */
  #acts(turn, run, reply) {
    if (run) return [];
    return [
      reply.text && button('copy', 'Copy the reply', () => copyText(reply.text)),
      button('retry', 'Another reply', () => this.app.regenerate(this.turn)),
      button('fork', 'Continue from here in a branch', () => this.app.fork(this.turn)),
    ].filter(Boolean);
  }
}
