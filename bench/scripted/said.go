package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

// said is the model's answer.
type said struct {
	turn     int
	calls    bool // a tool
	text     string
	prompt   []byte // the ids, as JSON
	prompted int    // how many these are
	ids      []int32
	logprobs []float32
}

// pieces is in how many events a stream has the text.
const pieces = 8

// whole is the answer as one.
func (s *said) whole() []byte {
	out := bytes.NewBuffer(make([]byte, 0, len(s.prompt)+80*len(s.ids)+1024))
	out.WriteString(`{"id":"chatcmpl-1","object":"chat.completion","model":"bench","prompt_token_ids":[`)
	out.Write(s.prompt)
	fmt.Fprintf(out, `],"choices":[{"index":0,"message":{"role":"assistant","content":%q`, s.text)
	if s.calls {
		fmt.Fprintf(out, `,"tool_calls":[{%s}]`, s.call())
	}
	fmt.Fprintf(out, `},"finish_reason":%q,`, s.finish())
	s.tokens(out, 0, len(s.ids))
	fmt.Fprintf(out, `}],"usage":%s}`, s.usage())
	return out.Bytes()
}

// stream sends the answer as vLLM streams it, with a pause before each piece but the first.
func (s *said) stream(ctx context.Context, w http.ResponseWriter, pause time.Duration) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(choice *bytes.Buffer, beside string) bool {
		_, err := fmt.Fprintf(w,
			`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"bench","choices":[%s]%s}`+"\n\n",
			choice, beside)
		return err == nil && control.Flush() == nil
	}
	at := func(n, piece int) int { return n * piece / pieces }
	var choice bytes.Buffer
	choice.WriteString(`{"index":0,"delta":{"role":"assistant","content":""}}`)
	if !send(&choice, fmt.Sprintf(`,"prompt_token_ids":[%s]`, s.prompt)) {
		return
	}
	for i := range pieces {
		if i > 0 && !retry.Sleep(ctx, pause) {
			return
		}
		choice.Reset()
		fmt.Fprintf(&choice, `{"index":0,"delta":{"content":%q},`, s.text[at(len(s.text), i):at(len(s.text), i+1)])
		s.tokens(&choice, at(len(s.ids), i), at(len(s.ids), i+1))
		choice.WriteByte('}')
		if !send(&choice, "") {
			return
		}
	}
	choice.Reset()
	choice.WriteString(`{"index":0,"delta":{`)
	if s.calls {
		fmt.Fprintf(&choice, `"tool_calls":[{"index":0,%s}]`, s.call())
	}
	fmt.Fprintf(&choice, `},"finish_reason":%q}`, s.finish())
	if send(&choice, "") {
		choice.Reset()
		send(&choice, `,"usage":`+s.usage())
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

func (s *said) call() string {
	return fmt.Sprintf(`"id":"call-%d","type":"function","function":{"name":"read_file","arguments":"{\"target_file\":\"main.go\",\"offset\":%d,\"limit\":4}"}`,
		s.turn, s.turn%64+1)
}

func (s *said) finish() string {
	if s.calls {
		return "tool_calls"
	}
	return "stop"
}

func (s *said) usage() string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, s.prompted, len(s.ids))
}

// tokens writes what a choice has of its tokens from one to before another.
func (s *said) tokens(out *bytes.Buffer, from, to int) {
	ids, _ := json.Marshal(s.ids[from:to]) // of numbers: no error
	fmt.Fprintf(out, `"token_ids":%s,"logprobs":{"content":[`, ids)
	for i, logprob := range s.logprobs[from:to] {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(out, `{"token":"","logprob":%v,"top_logprobs":[]}`, logprob)
	}
	out.WriteString(`]}`)
}
