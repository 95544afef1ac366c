package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

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
	long := strings.Repeat("grün 漢字 🙂 ", 3000)
	arguments := `{"text":"` + strings.Repeat("x", 10000) + `"}`
	b := newBackend(t, func(int, ask) said { return said{content: long, calls: [][2]string{{"a", "{}"}, {"write", arguments}}} })
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	got := p.post(m.chat(), map[string]any{"messages": []message{user("a")}, "stream": true, "stream_options": map[string]any{"include_usage": true}}, http.StatusOK, nil)
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
	if content != long || called[0] != "call-1-0a{}" || called[1] != "call-1-1write"+arguments || reason != "tool_calls" || list[len(list)-1] != "[DONE]" {
		t.Errorf("the stream said %d bytes, called %.200v, ended with %s and %s", len(content), called, reason, list[len(list)-1])
	}
	if total != turn.PromptTokens+turn.CompletionTokens || turn.TextOnly {
		t.Errorf("it used %d tokens; the turn is %d and %d", total, turn.PromptTokens, turn.CompletionTokens)
	}
}

// TestNothingIsSeenThatIsNotRecorded: the first byte of a stream comes when the turn is on the log.
func TestNothingIsSeenThatIsNotRecorded(t *testing.T) {
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	body := `{"messages":[{"role":"user","content":"a"}],"stream":true}`
	resp, err := http.Post(p.url+m.chat(), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if turns := p.rollout(m).Turns; len(turns) != 1 || turns[0].Content != "answer 0" {
		t.Errorf("the answer begins, and the log has %+v", turns)
	}
}

// TestClientLeaves: what nobody waits for is not asked for any more, and is no turn.
func TestClientLeaves(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	b := newBackend(t, func(n int, a ask) said {
		if n > 0 {
			return said{content: "later"}
		}
		close(asked)
		<-a.leave
		close(left)
		return said{content: "too late"}
	})
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.do(ctx, http.MethodPost, m.chat(), map[string]any{"messages": []message{user("a")}})
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
}

// TestClientThatDoesNotRead holds neither a slot nor a turn back.
func TestClientThatDoesNotRead(t *testing.T) {
	huge := strings.Repeat("x", 6<<20)
	b := newBackend(t, func(n int, _ ask) said {
		if n == 0 {
			return said{content: huge, textOnly: true}
		}
		return said{content: "small", textOnly: true}
	})
	p := newPlane(t, b.url, nil)
	p.url = p.serve(func(o *gateway.Options) { o.Slots = 1 })
	m := p.start(nil)
	at, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"messages":[{"role":"user","content":"a"}],"stream":true}`
	req, err := http.NewRequest(http.MethodPost, p.url+m.chat(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q: %v", line, err)
	}
	began := time.Now()
	p.say(m, user("b")) // would wait for the one slot
	if turns := p.rollout(m).Turns; len(turns) != 2 || len(turns[0].Content) != len(huge) {
		t.Errorf("%d turns", len(turns))
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the second call took %s", took)
	}
	p.finish(m, 1)
	if r := p.rollout(m); r.Finished.StopReason != events.StopFinished {
		t.Errorf("finished as %+v", r.Finished)
	}
}
