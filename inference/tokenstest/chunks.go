package tokenstest

import (
	"encoding/json"
	"math/rand/v2"
	"unicode/utf8"
)

// object is a JSON object of an answer or of a chunk.
type object = map[string]any

// Chunks cuts the whole answer of a chat into the chunks of a stream as vLLM sends them, at places
// that r draws: the prompt's ids in the first one, tokens with their log-probabilities beside the
// words, though not always in one chunk, what is said of the whole answer in the last one, and the
// usage behind it. Each is the data of an event.
func Chunks(whole []byte, r *rand.Rand) (chunks []string, err error) {
	var body struct {
		PromptTokenIDs json.RawMessage `json:"prompt_token_ids"`
		Usage          json.RawMessage `json:"usage"`
		Choices        []object        `json:"choices"`
	}
	if err := json.Unmarshal(whole, &body); err != nil {
		return nil, err
	}
	choice := body.Choices[0]
	message, _ := choice["message"].(object)
	ids, _ := choice["token_ids"].([]any)
	var logprobs []any
	if l, ok := choice["logprobs"].(object); ok {
		logprobs, _ = l["content"].([]any)
	}
	add := func(top object, delta object, end bool) {
		part := object{"index": 0, "delta": delta, "finish_reason": nil, "logprobs": nil}
		n, k := r.IntN(len(ids)+1), r.IntN(len(logprobs)+1)
		if end {
			n, k = len(ids), len(logprobs)
			for name, value := range choice {
				part[name] = value
			}
			delete(part, "message")
		}
		delete(part, "token_ids")
		if choice["token_ids"] != nil {
			part["token_ids"] = append([]any{}, ids[:n]...)
		}
		if logprobs != nil && (k > 0 || end) {
			part["logprobs"] = object{"content": logprobs[:k]}
		}
		ids, logprobs = ids[n:], logprobs[k:]
		top["choices"] = []any{part}
		chunks = append(chunks, text(top))
	}
	first := object{"id": "x", "object": "chat.completion.chunk"}
	if body.PromptTokenIDs != nil {
		first["prompt_token_ids"] = body.PromptTokenIDs
	}
	add(first, object{"role": "assistant", "content": ""}, false)
	for _, field := range []string{"reasoning", "reasoning_content", "content"} {
		said, _ := message[field].(string)
		for part := range pieces(said, r) {
			add(object{}, object{field: part}, false)
		}
	}
	calls, _ := message["tool_calls"].([]any)
	for i, c := range calls {
		call := c.(object)
		function := call["function"].(object)
		add(object{}, object{"tool_calls": []any{object{"index": i, "id": call["id"], "type": "function",
			"function": object{"name": function["name"]}}}}, false)
		arguments, _ := function["arguments"].(string)
		for part := range pieces(arguments, r) {
			add(object{}, object{"tool_calls": []any{object{"index": i, "function": object{"arguments": part}}}}, false)
		}
	}
	add(object{}, object{}, true)
	if body.Usage != nil {
		chunks = append(chunks, text(object{"choices": []any{}, "usage": body.Usage}))
	}
	return append(chunks, "[DONE]"), nil
}

// pieces cuts a text between its characters.
func pieces(said string, r *rand.Rand) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for said != "" {
			n := 1 + r.IntN(len(said))
			for n < len(said) && !utf8.RuneStart(said[n]) {
				n++
			}
			if !yield(said[:n]) {
				return
			}
			said = said[n:]
		}
	}
}

func text(value any) string {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return string(body)
}
