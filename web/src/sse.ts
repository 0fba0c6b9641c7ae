// Server-sent events over fetch: EventSource can neither POST nor send a token.

export type Message = { id: string; event: string; data: string };

/** The messages of a stream, as they come; ends when the server does. */
export async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .getReader();
  let rest = "";
  let id = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r\n\r\n|\n\n|\r\r/);
      // A block that ends in a lone carriage return may continue with its line feed.
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const message = read(block, id);
        id = message.id;
        if (message.data) yield message;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function read(block: string, last: string): Message {
  const message: Message = { id: last, event: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    if (!line || line.startsWith(":")) continue; // a ping
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event") message.event = value;
    else if (name === "id") message.id = value;
  }
  message.data = data.join("\n");
  return message;
}
