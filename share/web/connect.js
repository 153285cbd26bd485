// The Connect protocol, as the daemon's HTTP port speaks it for every service: JSON in, JSON or a stream of JSON out.
import { authorization } from './key.js';

const PACKAGE = '/parley.v1.';
const END_OF_STREAM = 2;
const ENVELOPE_BYTES = 5;

/** What a call ended with: gRPC's code in lower case, and the server's sentence. */
export class CallError extends Error {
  /** @param {string} code @param {string} message @param {any[]} [details] as Connect has them; of an answer of parleyd */
  constructor(code, message, details = []) {
    super(message);
    this.code = code;
    this.details = details;
  }

  /**
   * Whether the same request may succeed later: the server is away or on its way, or what lies between. Something that parleyd
   * lacks, as the grammar module, has no reason of its own and no time to try again.
   */
  get isPassing() {
    const isLacking = this.details.some(({ debug }) => debug?.reason === 'UNAVAILABLE') && !this.details.some(({ type }) => type === 'google.rpc.RetryInfo');
    return this.code === 'unavailable' && !isLacking;
  }
}

const CODES = { 401: 'unauthenticated', 403: 'permission_denied', 404: 'unimplemented', 429: 'unavailable', 502: 'unavailable',
  503: 'unavailable', 504: 'unavailable' };

/** @param {Response} response @returns {Promise<CallError>} */
async function errorOf(response) {
  const body = await response.json().catch(() => ({}));
  const code = body.code ?? CODES[response.status] ?? 'unknown';
  return new CallError(code, body.message ?? `the server answered ${response.status}`, body.details);
}

/** @param {string} method @param {string} type @param {BodyInit} body @param {AbortSignal} [signal] */
async function post(method, type, body, signal) {
  const headers = { 'Content-Type': type, 'Connect-Protocol-Version': '1', ...authorization() };
  try {
    return await fetch(PACKAGE + method, { method: 'POST', headers, body, signal, cache: 'no-store' });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new CallError('unavailable', 'the server cannot be reached');
  }
}

/**
 * One request, one response.
 * @param {string} method such as 'Conversations/Get'
 * @param {object} [request]
 * @returns {Promise<any>}
 */
export async function unary(method, request = {}) {
  const response = await post(method, 'application/json', JSON.stringify(request));
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

/** @param {object} request */
function enveloped(request) {
  const json = new TextEncoder().encode(JSON.stringify(request));
  const frame = new Uint8Array(ENVELOPE_BYTES + json.length);
  new DataView(frame.buffer).setUint32(1, json.length);
  frame.set(json, ENVELOPE_BYTES);
  return frame;
}

/** Cuts bytes into frames, whatever pieces they come in. */
class Frames {
  #parts = [];
  #length = 0;

  /** @param {Uint8Array} bytes */
  add(bytes) {
    this.#parts.push(bytes);
    this.#length += bytes.length;
  }

  /** @param {number} n @returns {Uint8Array} the first n bytes, still held */
  #peek(n) {
    if (this.#parts[0].length < n) {
      const whole = new Uint8Array(this.#length);
      let at = 0;
      for (const part of this.#parts) {
        whole.set(part, at);
        at += part.length;
      }
      this.#parts = [whole];
    }
    return this.#parts[0].subarray(0, n);
  }

  /** @returns {{flags: number, message: any}|null} the next frame, once all of it is there */
  next() {
    if (this.#length < ENVELOPE_BYTES) return null;
    const head = this.#peek(ENVELOPE_BYTES);
    const size = new DataView(head.buffer, head.byteOffset).getUint32(1);
    if (this.#length < ENVELOPE_BYTES + size) return null;
    const frame = this.#peek(ENVELOPE_BYTES + size);
    this.#parts[0] = this.#parts[0].subarray(frame.length);
    this.#length -= frame.length;
    const text = new TextDecoder().decode(frame.subarray(ENVELOPE_BYTES));
    return { flags: frame[0], message: text === '' ? {} : JSON.parse(text) };
  }
}

/**
 * One request, a stream of messages. A stream that ends without its last frame was cut: unavailable.
 * @param {string} method
 * @param {object} request
 * @param {AbortSignal} [signal]
 */
export async function* stream(method, request, signal) {
  const response = await post(method, 'application/connect+json', enveloped(request), signal);
  if (!response.ok) throw await errorOf(response);
  const reader = response.body.getReader();
  const frames = new Frames();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        if (signal?.aborted) throw error;
        return { done: true, value: undefined };
      });
      if (done) throw new CallError('unavailable', 'the connection was lost');
      frames.add(value);
      for (let frame = frames.next(); frame !== null; frame = frames.next()) {
        if ((frame.flags & END_OF_STREAM) === 0) {
          yield frame.message;
          continue;
        }
        const { error } = frame.message;
        if (error) throw new CallError(error.code, error.message ?? error.code, error.details);
        return;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
