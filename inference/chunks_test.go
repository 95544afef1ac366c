package inference_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// chatty is a server of chats that answers with a whole body, or with these events
// where a stream is asked for.
type chatty struct {
	whole           string
	events          []string
	status          int    // of the answer to a request for a stream; 0: 200
	plain           string // answers that in place of events
	streams, wholes int
}

func (s *chatty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Stream  bool
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &asked)
	}
	if err != nil || asked.Stream != asked.Options.Usage {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if !asked.Stream {
		s.wholes++
		io.WriteString(w, s.whole)
		return
	}
	s.streams++
	if s.events == nil {
		if s.status != 0 {
			w.WriteHeader(s.status)
		}
		io.WriteString(w, s.plain)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range s.events {
		fmt.Fprintf(w, "data: %s\n\n", e)
	}
}

// follow asks for a turn, and gives what was told of it.
func (s *chatty) follow(t *testing.T) (turn events.TurnSampled, prompt []int32, told inference.Delta,
	client *inference.Client, err error) {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	client = &inference.Client{HTTP: server.Client(), MaxTokens: 1000, Follow: func(d inference.Delta) {
		told.Content, told.Reasoning, told.Prompt = told.Content+d.Content, told.Reasoning+d.Reasoning, d.Prompt
	}}
	answer, err := client.Complete(t.Context(), server.URL,
		inference.Request{Messages: []inference.Message{{Role: "user", Content: "a"}}})
	if err != nil {
		return turn, nil, told, client, err
	}
	defer answer.Done()
	turn, prompt, err = answer.Turn(3, 7, time.Time{})
	turn.LatencyMS = 0
	return turn, prompt, told, client, err
}

func drawnText(r *rand.Rand) string {
	return strings.Repeat([]string{"grün 漢字 🙂\n", "a", `{"x": "\"`}[r.IntN(3)], r.IntN(4))
}

// drawn is a whole answer as vLLM's.
func drawn(r *rand.Rand) string {
	type o = map[string]any
	var ids, logprobs []any
	for range r.IntN(6) {
		ids = append(ids, r.IntN(1000))
		logprobs = append(logprobs, o{"token": "x", "logprob": -r.Float64(), "bytes": nil, "top_logprobs": []any{}})
	}
	message := o{"role": "assistant", "content": drawnText(r)}
	if r.IntN(2) == 0 {
		message[[]string{"reasoning", "reasoning_content"}[r.IntN(2)]] = drawnText(r)
	}
	var calls []any
	for i := range r.IntN(4) {
		calls = append(calls, o{"id": []string{fmt.Sprint("c", i), ""}[r.IntN(2)], "type": "function",
			"function": o{"name": "f", "arguments": drawnText(r)}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	choice := o{"index": 0, "message": message, "finish_reason": []any{"stop", "tool_calls", "length", "never heard of",
		nil}[r.IntN(5)], "stop_reason": nil}
	whole := o{"id": "x", "choices": []any{choice}, "usage": o{"prompt_tokens": 3, "completion_tokens": len(ids)}}
	if r.IntN(4) > 0 {
		whole["prompt_token_ids"], choice["token_ids"], choice["logprobs"] = []any{1, 2, 3}, append([]any{}, ids...),
			o{"content": append([]any{}, logprobs...)}
		if r.IntN(2) == 0 && len(ids) > 1 {
			choice["weight_versions"] = []any{o{"version": "4", "start": 0, "end": 1},
				o{"version": "5", "start": 1, "end": len(ids)}}
		}
	}
	if choice["finish_reason"] == nil && calls == nil &&
		fmt.Sprint(message["content"], message["reasoning"], message["reasoning_content"]) == fmt.Sprint("", nil, nil) {
		choice["finish_reason"] = "stop" // nothing at all, without an end, is no answer of a stream
	}
	text, err := json.Marshal(whole)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestChunksAreTheWholeAnswer: however an answer is cut into chunks, its turn is that of the whole
// one, and what was told is what the turn says.
func TestChunksAreTheWholeAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 41))
	for round := range 200 {
		s := &chatty{whole: drawn(r)}
		cut, err := tokenstest.Chunks([]byte(s.whole), r)
		if err != nil {
			t.Fatal(err)
		}
		plain := chatty{plain: s.whole} // which does not stream
		want, prompt, told, _, err := plain.follow(t)
		if err != nil || told != (inference.Delta{}) || plain.streams != 1 {
			t.Fatalf("%s: %v, told %+v", s.whole, err, told)
		}
		s.events = cut
		got, prompted, told, client, err := s.follow(t)
		if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(prompted, prompt) || client.Unstreamed {
			t.Fatalf("round %d: %v: the turn of\n%s\nis\n%+v\nwant\n%+v", round, err,
				strings.Join(s.events, "\n"), got, want)
		}
		reasoning := ""
		if want.Reasoning != nil {
			reasoning = want.Reasoning.Text
		}
		if told.Content != want.Content || told.Reasoning != reasoning ||
			told.Prompt != len(prompt) && told != (inference.Delta{}) {
			t.Fatalf("round %d: told %+v of %+v", round, told, want)
		}
	}
}

// Events of a stream.
const (
	saysA  = `{"choices":[{"index":0,"delta":{"content":"a"}}]}`
	ends   = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	wholeB = `{"choices":[{"finish_reason":"stop","message":{"content":"b"}}]}`
)

// TestServersThatDoNotStream are asked for whole answers at once: those that say so, and those
// whose chunks cannot be joined without a guess. SGLang's refusal names the fields by which tokens
// are asked for, and does not cost them.
func TestServersThatDoNotStream(t *testing.T) {
	call := func(calls string) string { return `{"choices":[{"index":0,"delta":{"tool_calls":[` + calls + `]}}]}` }
	for name, s := range map[string]*chatty{
		"an index that is a text":     {events: []string{`{"choices":[{"index":"0","delta":{"content":"a"}}]}`, ends}},
		"log-probabilities in a list": {events: []string{`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":[]}]}`, ends}},
		"a call's id is a number":     {events: []string{call(`{"index":0,"id":7,"function":{"name":"f"}}`), ends}},
		"a fault in the last chunk":   {events: []string{`{"choices":[{"index":0,"delta":{"thinking_blocks":[{}]},"finish_reason":"stop"}]}`}},
		"too many calls in a chunk": {events: []string{call(strings.Repeat(`{"index":0},`, inference.MaxToolCalls+1) +
			`{"index":0}`), ends}},
		"events of no such type": {plain: "data: " + saysA + "\n\n"},
		"no such method":         {status: http.StatusMethodNotAllowed, plain: "Streaming is not supported"},
		"no such page":           {status: http.StatusNotFound, plain: `{"detail":"no stream here: not found"}`},
		"broken by it": {status: http.StatusInternalServerError,
			plain: `{"error":{"message":"stream=true is unsupported"}}`},
		"SGLang": {status: http.StatusBadRequest,
			plain: `{"object":"error","message":"return_token_ids is not supported with streaming on /v1/chat/completions. Please set stream=false when using return_token_ids=true."}`},
		"a strict API": {status: http.StatusUnprocessableEntity,
			plain: `{"error":{"message":"stream_options: Extra inputs are not permitted"}}`},
		"content in parts": {events: []string{`{"choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":"hm"}]}}]}`, ends}},
		"thinking blocks":  {events: []string{`{"choices":[{"index":0,"delta":{"thinking_blocks":[{"type":"thinking","thinking":"hm"}]}}]}`, ends}},
		"the older call": {events: []string{`{"choices":[{"index":0,"delta":{"function_call":{"name":"f"}}}]}`,
			ends}},
		"a call without index":    {events: []string{call(`{"id":"c","function":{"name":"f"}}`), ends}},
		"a call of a later index": {events: []string{call(`{"index":1,"id":"c","function":{"name":"f"}}`), ends}},
		"two calls of one index":  {events: []string{call(`{"index":0,"id":"c","function":{"name":"f"}},{"index":0,"id":"d","function":{"name":"f"}}`), ends}},
		"a name in parts": {events: []string{call(
			`{"index":0,"id":"c","function":{"name":"f"}},{"index":0,"function":{"name":"g"}}`), ends}},
		"arguments that are no text": {events: []string{call(
			`{"index":0,"id":"c","function":{"name":"f","arguments":{"a":1}}}`), ends}},
	} {
		t.Run(name, func(t *testing.T) {
			s.whole = wholeB
			turn, _, told, client, err := s.follow(t)
			if err != nil || turn.Content != "b" || told != (inference.Delta{}) || !client.Unstreamed ||
				s.streams != 1 || s.wholes != 1 {
				t.Errorf("%+v, told %+v, asked %d and %d times: %v", turn, told, s.streams, s.wholes, err)
			}
		})
	}
}

// TestRefusedEitherWay: a server that refuses the whole answer, too, may stream what it takes.
func TestRefusedEitherWay(t *testing.T) {
	says := `{"error":{"message":"messages: want a list, got {\"messages\":7,\"stream\":true}","code":400}}`
	s := &chatty{status: http.StatusBadRequest, plain: says, whole: says}
	if _, _, _, client, err := s.follow(t); err == nil || client.Unstreamed || s.wholes != 1 {
		t.Errorf("it is taken for one that does not stream: %v", err)
	}
}

// TestFailuresOfNoStream: what goes wrong without a word of streams says nothing of them, and the
// whole answer is not asked for.
func TestFailuresOfNoStream(t *testing.T) {
	for _, says := range []string{"upstream is not there", "the engine died", "the stream broke"} {
		s := &chatty{status: http.StatusInternalServerError, plain: says, whole: wholeB}
		if _, _, _, client, err := s.follow(t); err == nil || client.Unstreamed || s.wholes != 0 {
			t.Errorf("%s: %v, asked %d times for the whole answer", says, err, s.wholes)
		}
	}
}

// TestStreamsThatFail within an answer are failures of the server, and nothing else is asked
// for: something was told.
func TestStreamsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		events     []string
		want       string
		unstreamed bool
	}{
		"broken off": {[]string{saysA}, "ended within the answer", false},
		"an error behind it": {[]string{saysA, `{"error":{"message":"engine died"}}`, "[DONE]"}, "engine died",
			false},
		"an error": {[]string{saysA,
			`{"error":{"message":"unknown field return_token_ids: maximum context length is 7 tokens","code":400}}`},
			"maximum context length", false},
		"no JSON": {[]string{saysA, `{"choices":`}, "unexpected end", false},
		"two choices": {[]string{saysA, `{"choices":[{"index":0},{"index":1}]}`},
			"more than one choice", false},
		"the second choice": {[]string{saysA, `{"choices":[{"index":1,"delta":{"content":"b"}}]}`}, "index 1",
			false},
		"behind the end": {[]string{saysA, ends, saysA}, "goes on behind the end", false},
		"a fault beside it": {[]string{saysA,
			`{"choices":[{"index":0,"delta":{},"token_ids":7,"finish_reason":"stop"}]}`}, "want a list", false},
		"a half behind the end": {[]string{saysA, ends,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c"},{"index":7}]}}]}`},
			"goes on behind the end", false},
		"ids that are none": {[]string{saysA, `{"choices":[{"index":0,"token_ids":7}]}`}, "want a list", false},
		"later blocks": {[]string{saysA, `{"choices":[{"index":0,"delta":{"reasoning_details":[{}]}}]}`},
			"cannot be joined", true},
		"two kinds of thoughts": {[]string{`{"choices":[{"index":0,"delta":{"reasoning":"a"}}]}`,
			`{"choices":[{"index":0,"delta":{"reasoning_content":"b"}}]}`, ends}, "differ", true},
		"too much": {[]string{saysA, `{"x":"` + strings.Repeat("x", 6<<20) + `"}`, ends},
			"answered more than", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &chatty{whole: wholeB, events: c.events}
			_, _, told, client, err := s.follow(t)
			f, is := errors.AsType[*inference.Failure](err)
			if !is || !strings.Contains(err.Error(), c.want) || s.wholes != 0 || told.Content+told.Reasoning != "a" ||
				client.Unstreamed != c.unstreamed {
				t.Fatalf("%v, told %+v, asked %d times for the whole answer", err, told, s.wholes)
			}
			if f.Permanent || f.OnlyOpenAI || f.Overflow != nil || f.Refusal != "" {
				t.Errorf("it is taken for a fault of the request: %+v", f)
			}
		})
	}
}

// TestEndsOfStreams: an answer that has come to its end is whole, whatever becomes of what is
// behind it. One with more calls than a turn may have is refused as a whole one is.
func TestEndsOfStreams(t *testing.T) {
	none := &chatty{events: []string{saysA, "[DONE]"}}
	if turn, _, _, _, err := none.follow(t); err != nil || turn.FinishReason != events.FinishUnknown {
		t.Errorf("an end without a word is %s: %v", turn.FinishReason, err)
	}
	for _, says := range []string{`{"choices":[]}`,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`} {
		empty := &chatty{events: []string{says, "[DONE]"}}
		if _, _, _, _, err := empty.follow(t); err == nil || !strings.Contains(err.Error(), "ended within the answer") {
			t.Errorf("an answer of %s alone: %v", says, err)
		}
	}
	for _, rest := range [][]string{nil, {"[DONE]"}, {`{"choices":[],"usage":`},
		{`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`}} {
		s := &chatty{events: append([]string{saysA, ends}, rest...)}
		turn, _, _, _, err := s.follow(t)
		if err != nil || turn.Content != "a" || turn.FinishReason != events.FinishStop {
			t.Errorf("%v: %+v, %v", rest, turn, err)
		}
	}
	var calls []string
	for i := range 2 * inference.MaxToolCalls {
		calls = append(calls,
			fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"f","arguments":"{}"}}]}}]}`, i, i))
	}
	s := &chatty{events: append(calls, ends), whole: wholeB}
	if _, _, _, client, err := s.follow(t); err == nil ||
		!strings.Contains(err.Error(), "tool calls in one turn") || client.Unstreamed {
		t.Errorf("%d calls: %v", len(calls), err)
	}
}

// TestPlainServersStream: a server that takes OpenAI's own fields alone is asked for a
// stream without the others.
func TestPlainServersStream(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		if strings.Contains(string(body), "return_token_ids") {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":{"message":"Unrecognized request argument supplied: return_token_ids"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\ndata: %s\n\n", saysA, ends)
	}))
	defer server.Close()
	told := ""
	client := inference.Client{HTTP: server.Client(), Follow: func(d inference.Delta) { told += d.Content }}
	answer, plain, err := client.CompleteAs(t.Context(), server.URL, false,
		inference.Request{Sample: inference.NewSample(runfile.NeutralSampling())})
	if err != nil || !plain || !answer.Streamed() || told != "a" || len(bodies) != 2 ||
		!strings.Contains(bodies[1], `"stream":true`) {
		t.Fatalf("%v, plain %t, told %q: %q", err, plain, told, bodies)
	}
	answer.Done()
}
