// One rollout of two turns with a tool, by OpenAI's client for Node. Usage: client.cjs KEY BASE_URL; prints what it was told.
const OpenAI = require("openai");

async function main() {
  const [apiKey, baseURL] = process.argv.slice(2);
  const client = new OpenAI({ baseURL, apiKey });
  const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }];
  const messages = [{ role: "user", content: "Mend it." }];
  const first = await client.chat.completions.stream({ model: "any", messages, tools }).finalChatCompletion();
  const call = first.choices[0].message.tool_calls[0];
  const { role, content, tool_calls } = first.choices[0].message;
  messages.push({ role, content, tool_calls }, { role: "tool", tool_call_id: call.id, content: "all is well" });
  const last = await client.chat.completions.create({ model: "any", messages, tools });
  let broken = "";
  try {
    const half = { model: "any", messages: [{ role: "user", content: "Break off." }] };
    await client.chat.completions.stream(half, { maxRetries: 0 }).finalChatCompletion();
  } catch (error) {
    broken = error instanceof OpenAI.APIError ? "broken" : String(error);
  }
  let refused = "";
  try {
    await new OpenAI({ baseURL, apiKey: "wrong" }).models.list();
  } catch (error) {
    refused = error instanceof OpenAI.AuthenticationError ? "refused" : String(error);
  }
  console.log(JSON.stringify([call.function.name, first.choices[0].finish_reason, last.choices[0].message.content, last.choices[0].finish_reason, broken, refused]));
}

main();
