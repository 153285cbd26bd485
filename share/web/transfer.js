// Conversations as files: all that the server knows, as OpenAI's messages, or to be read; and files as conversations.
import { unary } from './connect.js';
import { askedOf, requestId, titleOf } from './chat.js';

const FORMAT = 'parley.conversation';
const IMPORT_BYTES = 2 << 20; // of turns in one request

/** @param {any} chat @returns {{role: string, content: string}[]} */
function messagesOf(chat) {
  const system = chat.system ? [{ role: 'system', content: chat.system }] : [];
  return [...system, ...chat.turns.flatMap((turn) => [
    ...(turn.messages ?? []).map(messageOf),
    ...(turn.finishReason === 'FINISH_REASON_OBSERVED' ? [] : [messageOf({ role: 'assistant', ...(turn.message ?? { text: turn.reply }) })]),
  ])];
}

/** A message of ours in OpenAI's form. @param {any} message */
function messageOf({ role, text, name, toolCalls, toolCallId, reasoning }) {
  return {
    role: role || 'user',
    content: text ?? '',
    ...(name && { name }),
    ...(reasoning && { reasoning_content: reasoning }),
    ...(toolCalls?.length > 0 && { tool_calls: toolCalls.map((call) => ({ id: call.id ?? '', type: 'function', function: { name: call.name, arguments: call.arguments ?? '' } })) }),
    ...(toolCallId && { tool_call_id: toolCallId }),
  };
}

/** The calls of a message in OpenAI's form, as ours. @param {any[]|undefined} calls */
function callsOf(calls) {
  return (calls ?? []).map((call) => ({ id: call.id, name: call.function?.name, arguments: call.function?.arguments }));
}

/** To be read: a message's text, and its calls as code. @param {any} message */
function readable({ role, content, tool_calls: calls = [] }) {
  const made = calls.map((call) => `\`\`\`json\n${call.function.name}(${call.function.arguments})\n\`\`\``);
  return `**${role}**\n\n${[content, ...made].filter(Boolean).join('\n\n')}\n`;
}

/** @type {Record<string, {ending: string, type: string, write: (chat: any, name: string) => string}>} */
export const EXPORTS = {
  'Export all of it (JSON)': { ending: 'json', type: 'application/json', write: (chat, name) => JSON.stringify({
    format: FORMAT, version: 1, name, model: chat.modelName, system: chat.system ?? '', sampling: chat.sampling ?? {}, turns: chat.turns }, null, 2) },
  'Export OpenAI’s messages': { ending: 'messages.json', type: 'application/json', write: (chat) => JSON.stringify({ model: chat.modelName, messages: messagesOf(chat) }, null, 2) },
  'Export to read (Markdown)': { ending: 'md', type: 'text/markdown', write: (chat, name) => `# ${name}\n\n${messagesOf(chat).map(readable).join('\n')}` },
};

/** Gives the user a file. @param {string} name @param {string} type @param {string} text */
export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name.replace(/[^\p{L}\p{N}._-]+/gu, '-').slice(0, 100) || 'conversation';
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * Turns of a list of messages: what stands before a reply is its turn's. A message with calls is no reply of ours, since a model's
 * own spelling of them is not known: it stands among the messages.
 * @param {any[]} messages
 */
function turnsOf(messages) {
  const turns = [];
  let open = [];
  const textOf = (content) => (Array.isArray(content) ? content.map((part) => part.text ?? '').join('') : String(content ?? ''));
  for (const { role, content, name, tool_calls: calls, tool_call_id: toolCallId, reasoning_content: reasoning } of messages) {
    if (role !== 'assistant' || calls?.length > 0) {
      open.push({ role, text: textOf(content), ...(name && { name }), toolCalls: callsOf(calls), ...(toolCallId && { toolCallId }), ...(reasoning && { reasoning }) });
    } else {
      turns.push({ messages: open, reply: textOf(content), finishReason: 'FINISH_REASON_STOP' });
      open = [];
    }
  }
  if (open.length > 0) turns.push({ messages: open, finishReason: 'FINISH_REASON_OBSERVED' });
  return turns;
}

/** @param {string} text @returns {{name: string, model: string, system: string, sampling: object, turns: any[]}} */
export function parsedFile(text) {
  const nothing = () => new Error('This file has no conversation that can be read.');
  const areObjects = (list) => list.every((one) => one !== null && typeof one === 'object');
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('This file is not JSON: an export of this page, or OpenAI’s messages, can be read.');
  }
  if (file?.format === FORMAT && Array.isArray(file.turns)) {
    if (!areObjects(file.turns)) throw nothing();
    const { name = '', model = '', system = '', sampling = {}, turns } = file;
    return { name, model, system, sampling, turns };
  }
  const messages = Array.isArray(file) ? file : file?.messages;
  if (!Array.isArray(messages) || messages.length === 0 || !areObjects(messages)) throw nothing();
  const [first, ...rest] = messages;
  const isSystem = first.role === 'system';
  return { name: '', model: '', system: isSystem ? String(first.content) : '', sampling: {}, turns: turnsOf(isSystem ? rest : messages) };
}

/**
 * Opens a conversation with the turns of a file.
 * @param {ReturnType<typeof parsedFile>} file @param {any} library
 * @returns {Promise<string>} its id
 */
export async function importFile(file, library) {
  const title = file.name || titleOf(askedOf(file.turns[0]?.messages) ?? '') || 'Imported';
  const model = library.models.some((m) => m.name === file.model) ? file.model : '';
  const { conversation } = await unary('Conversations/Open', { model, system: file.system, sampling: file.sampling, metadata: { title }, requestId: requestId() });
  let batch = [];
  let bytes = 0;
  const send = async () => {
    if (batch.length > 0) await unary('Conversations/Import', { conversation, turns: batch });
    batch = [];
    bytes = 0;
  };
  try {
    for (const { messages, reply, finishReason, usage } of file.turns) {
      const turn = { messages, reply, finishReason, usage };
      bytes += JSON.stringify(turn).length;
      if (bytes > IMPORT_BYTES) await send();
      batch.push(turn);
    }
    await send();
  } catch (error) {
    await unary('Conversations/Close', { conversation }).catch(() => {}); // half of a file is not left behind
    throw error;
  }
  return conversation;
}
