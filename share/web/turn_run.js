// One turn, from its request to its end, through lost networks and restarted daemons. The turn's number makes a repeated request
// safe, and the cursor of the last piece says where the reply goes on: so what is shown is the same text, whatever happened.
import { CallError, stream, unary } from './connect.js';

const FIRST_DELAY_MS = 250;
const LAST_DELAY_MS = 8000;

/**
 * @typedef {object} Reply what is there of a reply
 * @property {string} text
 * @property {string} reasoning
 * @property {{id: string, name: string, arguments: string}[]} calls
 * @property {number} tokens
 */

/** @returns {Reply} */
export function emptyReply() {
  return { text: '', reasoning: '', calls: [], tokens: 0 };
}

/** @param {Reply} reply @param {any} piece @returns {Reply} */
function extended(reply, piece) {
  const calls = reply.calls.map((call) => ({ ...call }));
  for (const delta of piece.toolCalls ?? []) {
    const call = (calls[delta.index ?? 0] ??= { id: '', name: '', arguments: '' });
    call.id += delta.id ?? '';
    call.name += delta.name ?? '';
    call.arguments += delta.arguments ?? '';
  }
  return {
    text: reply.text + (piece.text ?? ''),
    reasoning: reply.reasoning + (piece.reasoning ?? ''),
    calls,
    tokens: reply.tokens + (piece.tokenIds?.length ?? 0),
  };
}

/** Waits until the delay is over or the browser has its network back. @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const end = (act) => () => {
      clearTimeout(timer);
      removeEventListener('online', go);
      signal.removeEventListener('abort', stop);
      act();
    };
    const go = end(resolve);
    const stop = end(() => reject(signal.reason));
    const timer = setTimeout(go, ms);
    addEventListener('online', go);
    signal.addEventListener('abort', stop);
  });
}

export class TurnRun {
  #leaving = new AbortController();
  #cursor = null; // of the last piece that has one
  #sure = emptyReply(); // as far as the cursor; pieces behind it come again

  /**
   * @param {any} request a TurnRequest with its turn's number; without messages it joins a turn that runs
   * @param {() => void} changed called after each change of the fields below
   */
  constructor(request, changed) {
    this.request = request;
    this.changed = changed;
    this.reply = emptyReply();
    /** @type {'waiting'|'reading'|'writing'|'lost'|'done'|'failed'} */
    this.state = 'waiting';
    this.accepted = null;
    this.progress = null; // of a long prompt
    this.done = null;
    /** @type {CallError|null} why it has failed, or waits to be asked for again */
    this.error = null;
    this.firstAt = 0; // 0: nothing of the reply has come
    this.firstTokens = 0; // that came then
    this.joinedAt = null; // the text's length where the connection was lost last
  }

  get isOver() {
    return this.state === 'done' || this.state === 'failed';
  }

  /** Follows the turn to its end; never rejects. */
  async follow() {
    let delay = FIRST_DELAY_MS;
    while (!this.isOver) {
      try {
        for await (const event of stream('Conversations/Turn', this.#asked(), this.#leaving.signal)) {
          delay = FIRST_DELAY_MS;
          this.#take(event);
        }
        if (!this.isOver) throw new CallError('unavailable', 'the reply was cut');
      } catch (error) {
        if (this.#leaving.signal.aborted || this.isOver) return;
        this.error = error;
        if (!(error instanceof CallError) || !error.isPassing) {
          this.#enter('failed');
          return;
        }
        this.reply = this.#sure;
        this.firstAt = 0;
        this.joinedAt = this.reply.text.length || this.joinedAt;
        this.#enter('lost');
        await pause(delay * (0.5 + Math.random() / 2), this.#leaving.signal).catch(() => {});
        if (this.#leaving.signal.aborted || this.isOver) return;
        delay = Math.min(delay * 2, LAST_DELAY_MS);
      }
    }
  }

  /** Ends the turn at the server, with what there is of the reply; asks no more for one that the server has not taken. */
  stop() {
    const { conversation, turn } = this.request;
    if (this.state === 'lost' && this.accepted === null) {
      this.#enter('failed');
      this.leave();
      return Promise.resolve();
    }
    return unary('Conversations/Cancel', { conversation, turn });
  }

  /** Follows no further. The turn itself goes on. */
  leave() {
    this.#leaving.abort(new DOMException('left', 'AbortError'));
  }

  #asked() {
    return this.#cursor === null ? this.request : { ...this.request, resumeFrom: this.#cursor };
  }

  /** @param {TurnRun['state']} state */
  #enter(state) {
    this.state = state;
    this.changed();
  }

  /** @param {any} event */
  #take(event) {
    if (event.accepted) {
      this.accepted = event.accepted;
      this.#enter(this.reply.tokens > 0 ? 'writing' : 'reading');
    } else if (event.progress) {
      this.progress = event.progress;
      this.changed();
    } else if (event.piece) {
      this.reply = extended(this.reply, event.piece);
      if (this.firstAt === 0) {
        this.firstAt = performance.now();
        this.firstTokens = this.reply.tokens;
      }
      if (event.piece.nextIndex) this.#reach(event.piece.nextIndex);
      this.#enter('writing');
    } else if (event.done) {
      this.done = event.done;
      this.#enter('done');
    }
  }

  /** @param {string} index */
  #reach(index) {
    const generation = this.accepted?.generation ?? this.request.resumeFrom?.generation ?? 1;
    this.#cursor = { generation, turn: this.request.turn, index };
    this.#sure = this.reply;
  }
}
