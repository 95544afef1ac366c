package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/gateway"
)

// chunk is what these tests read of a stream's event.
type chunk struct {
	Choices []struct {
		Delta struct {
			Role      string `json:"role"`
			Content   string `json:"content"`
			ToolCalls []struct {
				Index    int    `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Total int `json:"total_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	} `json:"error"`
}

// eventsOf reads the data of a stream's events.
func eventsOf(t *testing.T, body string) (list []string) {
	t.Helper()
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: "); ok {
			list = append(list, data)
		}
	}
	return list
}

// TestStream: a stream says what the whole answer would have, in pieces that every client can read.
func TestStream(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("grün 漢字 🙂 ", 3000)
	arguments := `{"text":"` + strings.Repeat("x", 10000) + `"}`
	b := newBackend(t, func(int, ask) said {
		return said{content: long,
			calls: [][2]string{{"a", "{}"}, {"write", arguments}}}
	})
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	got := p.post(m.chat(), map[string]any{"messages": []message{user("a")}, "stream": true,
		"stream_options": map[string]any{"include_usage": true}}, http.StatusOK, nil)
	if kind := got.header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("the type is %s", kind)
	}
	list := eventsOf(t, string(got.body))
	content, called, reason, total := "", map[int]string{}, "", 0
	for i, data := range list[:len(list)-1] {
		if len(data) > 10000 {
			t.Errorf("event %d has %d bytes", i, len(data))
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatal(err)
		}
		if c.Usage != nil {
			total = c.Usage.Total
		}
		for _, choice := range c.Choices {
			content += choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				called[call.Index] += call.ID + call.Function.Name + call.Function.Arguments
			}
			if choice.FinishReason != nil {
				reason = *choice.FinishReason
			}
		}
	}
	turns := p.rollout(m).Turns
	if len(turns) != 1 {
		t.Fatalf("%d turns; the stream said %.2000s", len(turns), got.body)
	}
	turn := turns[0]
	if content != long || called[0] != "call-1-0a{}" || called[1] != "call-1-1write"+arguments ||
		reason != "tool_calls" || list[len(list)-1] != "[DONE]" {
		t.Errorf("the stream said %d bytes, called %.200v, ended with %s and %s", len(content), called,
			reason, list[len(list)-1])
	}
	if total != turn.PromptTokens+turn.CompletionTokens || turn.TextOnly {
		t.Errorf("it used %d tokens; the turn is %d and %d", total, turn.PromptTokens, turn.CompletionTokens)
	}
}

// asks are requests for a stream, by the path of their dialect, with what of an answer
// says that it is complete.
var asks = map[string]struct{ body, ends string }{
	"chat/completions": {`{"messages":[{"role":"user","content":"a"}],"stream":true}`, `"finish_reason":"tool_calls"`},
	"responses":        {`{"input":"a","stream":true}`, "response.completed"},
	"messages":         {`{"max_tokens":99,"messages":[{"role":"user","content":"a"}],"stream":true}`, "message_delta"},
}

// TestNothingIsCompleteThatIsNotRecorded: in each dialect a client reads thoughts and words
// while the inference server sends them. It sees a call, and that the answer is complete,
// when the turn is on the log.
func TestNothingIsCompleteThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	for path, c := range asks {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			told := make(chan struct{})
			b := newBackend(t, func(int, ask) said {
				return said{thought: "I wonder.", content: "I look.", calls: [][2]string{{"look", `{"a":"bcd"}`}},
					between: func(sent string) {
						if strings.Contains(sent, "look") { // the name of the call
							<-told
						}
					}}
			})
			p := newPlane(t, b.url, nil)
			m := p.start(nil)
			resp, err := http.Post(p.url+"/rollouts/"+m.ID+"/v1/"+path, "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines, seen, recorded, released := bufio.NewScanner(resp.Body), "", -1, false
			var said strings.Builder
			for lines.Scan() {
				seen += lines.Text() + "\n"
				data, _ := strings.CutPrefix(lines.Text(), "data: ")
				var event struct {
					Delta   json.RawMessage
					Choices []struct{ Delta json.RawMessage }
				}
				_ = json.Unmarshal([]byte(data), &event) // not every line is an event
				for _, c := range event.Choices {
					event.Delta = c.Delta
				}
				for _, text := range regexp.MustCompile(
					`(?:^|"(?:content|text|thinking|reasoning_content)":)"([^"]+)"`).FindAllSubmatch(event.Delta, -1) {
					said.Write(text[1])
				}
				if !released && said.String() == "I wonder.I look." {
					released = true
					if turns := p.rollout(m).Turns; len(turns) != 0 {
						t.Errorf("the log has %+v", turns)
					}
					close(told)
				}
				if recorded < 0 && (strings.Contains(data, `"look"`) || strings.Contains(data, c.ends)) {
					recorded = len(p.rollout(m).Turns)
				}
			}
			if !released {
				close(told)
			}
			if strings.Contains(seen, `"input_tokens":0`) {
				t.Errorf("the prompt's tokens are not counted at the beginning: %s", seen)
			}
			if recorded != 1 || !released || !strings.Contains(seen, c.ends) {
				t.Errorf("the log had %d turns when the first call was seen; all that was said is %s", recorded, seen)
			}
			turn := p.rollout(m).Turns[0]
			if turn.Content != "I look." || turn.Reasoning.Text != "I wonder." ||
				turn.ToolCalls[0].Arguments != `{"a":"bcd"}` || turn.TextOnly || len(b.seen()) != 1 {
				t.Errorf("the turn is %+v", turn)
			}
		})
	}
}

// TestStreamsThatBreakOff: an answer that breaks off, is aborted or is refused at its end
// ends with an error in the client's dialect, and is no turn. It is not asked for again,
// and the rollout goes on.
func TestStreamsThatBreakOff(t *testing.T) {
	t.Parallel()
	many := make([][2]string, 65)
	for i := range many {
		many[i] = [2]string{"look", "{}"}
	}
	for name, s := range map[string]said{
		"breaks off": {cut: true}, "aborted": {reason: "abort"}, "failed": {reason: "error"},
		"too many calls": {calls: many},
	} {
		s.content = "Half of it."
		for path, c := range asks {
			t.Run(name+" "+path, func(t *testing.T) {
				t.Parallel()
				b := newBackend(t, func(n int, _ ask) said {
					if n == 0 {
						return s
					}
					return said{content: "more"}
				})
				p := newPlane(t, b.url, nil)
				m := p.start(nil)
				got := p.post("/rollouts/"+m.ID+"/v1/"+path, c.body, http.StatusOK, nil)
				list := eventsOf(t, string(got.body))
				if last := list[len(list)-1]; !strings.Contains(last, `"error":{`) ||
					strings.Contains(string(got.body), c.ends) ||
					strings.Contains(string(got.body), `"look"`) || len(list) < 2 {
					t.Errorf("the stream is %s", got.body)
				}
				if turns, asked := p.rollout(m).Turns, b.seen(); len(turns) != 0 || len(asked) != 1 {
					t.Errorf("asked %d times, the log has %+v", len(asked), turns)
				}
				p.say(m, user("b"))
				if turns := p.rollout(m).Turns; len(turns) != 1 || turns[0].Content != "more" {
					t.Errorf("turns are %+v", turns)
				}
			})
		}
	}
}

// TestRolloutEndsWithinAStream: what is refused when it is to be recorded is an error
// at the end, and no turn.
func TestRolloutEndsWithinAStream(t *testing.T) {
	t.Parallel()
	var p *plane
	var m member
	b := newBackend(t, func(int, ask) said {
		return said{content: "Words.", between: func(sent string) {
			if p.rollout(m).Failed == nil {
				p.post("/rollouts/"+m.ID+"/finish", map[string]any{"failure": "it broke"}, http.StatusOK, nil)
			}
		}}
	})
	p = newPlane(t, b.url, nil)
	m = p.start(nil)
	got := p.post(m.chat(), asks["chat/completions"].body, http.StatusOK, nil)
	if list := eventsOf(t, string(got.body)); !strings.Contains(list[len(list)-1], `"code":"rollout_over"`) ||
		!strings.Contains(string(got.body), `"content":"W`) {
		t.Errorf("the stream is %s", got.body)
	}
	if turns := p.rollout(m).Turns; len(turns) != 0 {
		t.Errorf("turns are %+v", turns)
	}
}

// TestServersWithoutStreams: a client that wants a stream has one of a server that answers as a
// whole, or refuses streams. The latter is asked for one once, and its tokens are recorded.
func TestServersWithoutStreams(t *testing.T) {
	t.Parallel()
	refuses := func(_ int, a ask) said {
		if a.Stream {
			return said{status: http.StatusBadRequest,
				raw: `{"object":"error","message":"return_token_ids is not supported with streaming on /v1/chat/completions"}`}
		}
		return said{content: "whole"}
	}
	b := newBackend(t, refuses)
	p := newPlane(t, b.url, nil)
	for i := range 2 {
		m := p.start(map[string]any{"group": fmt.Sprint("g", i)})
		got := p.post(m.chat(), asks["chat/completions"].body, http.StatusOK, nil)
		turns := p.rollout(m).Turns
		if !strings.Contains(string(got.body), "[DONE]") || len(turns) != 1 || turns[0].TextOnly ||
			turns[0].Content != "whole" {
			t.Errorf("the stream is %s, the turns are %+v", got.body, turns)
		}
	}
	if asked := b.seen(); len(asked) != 3 || !asked[0].Stream || asked[1].Stream || asked[2].Stream {
		t.Errorf("asked %+v", asked)
	}
}

// TestClientLeaves: what nobody waits for is not asked for any more, and is no turn, whether or
// not some of it was told.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			asked, left := make(chan struct{}), make(chan struct{})
			wait := sync.OnceFunc(func() { close(asked) })
			b := newBackend(t, func(n int, a ask) said {
				if n > 0 {
					return said{content: "later"}
				}
				leave := func(string) {
					wait()
					<-a.leave
					select {
					case <-left:
					default:
						close(left)
					}
				}
				if stream {
					return said{content: "too late", between: func(sent string) {
						if strings.Contains(sent, "too") || strings.Contains(sent, `"content":"t`) {
							leave(sent)
						}
					}}
				}
				leave("")
				return said{content: "too late"}
			})
			p := newPlane(t, b.url, nil)
			m := p.start(nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := p.do(ctx, http.MethodPost, m.chat(),
					map[string]any{"messages": []message{user("a")}, "stream": stream})
				done <- err
			}()
			<-asked
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			<-left
			p.say(m, user("b"))
			if turns := p.rollout(m).Turns; len(turns) != 1 || turns[0].Content != "later" {
				t.Errorf("turns are %+v", turns)
			}
		})
	}
}

// TestClientThatDoesNotRead holds neither a slot nor a turn back: while the gateway has a piece for
// it that finds no place on its connection, another call is answered. The client has all of the
// answer when it reads on, so it was not given up to make way.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	const buffer = 16 << 10 // of each end of the connection
	huge := strings.Repeat("x", 256<<10)
	b := newBackend(t, func(n int, _ ask) said {
		if n == 0 {
			return said{content: huge, textOnly: true}
		}
		return said{content: "small", textOnly: true}
	})
	p := newPlane(t, b.url, nil)
	server := httptest.NewUnstartedServer(p.gateway(func(o *gateway.Options) { o.Slots = 1 }, nil))
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.(*net.TCPConn).SetWriteBuffer(buffer)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	p.url = server.URL
	m := p.start(nil)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(buffer); err != nil {
		t.Fatal(err)
	}
	body := `{"messages":[{"role":"user","content":"a"}],"stream":true}`
	req, err := http.NewRequest(http.MethodPost, p.url+m.chat(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReaderSize(conn, 16)
	first, err := reader.Peek(16)
	if err != nil || !strings.Contains(string(first), "200") {
		t.Fatalf("%q: %v", first, err)
	}
	p.say(m, user("b"))                                                  // would wait for the one slot
	if err := conn.(*net.TCPConn).SetReadBuffer(len(huge)); err != nil { // it reads on, and not in small pieces
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(reader, req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the client that reads on has %d bytes, %q at their end: %v", len(rest),
			rest[max(0, len(rest)-100):], err)
	}
	if turns := p.rollout(m).Turns; len(turns) != 2 || len(turns[0].Content) != len(huge) {
		t.Errorf("%d turns, want 2, the first with %d bytes", len(turns), len(huge))
	}
	p.finish(m, 1)
	if r := p.rollout(m); r.Finished.StopReason != events.StopFinished {
		t.Errorf("finished as %+v", r.Finished)
	}
}
