package generator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

func tellRoom(c *runfile.RunConfig) { c.Limits.TellRoom = true }

// checkTold checks that each turn but the last says how much of a context was used, and that the
// trajectory has that where the model saw it.
func checkTold(t *testing.T, made []events.TurnSampled, trajectory *storage.Trajectory, limit int) {
	t.Helper()
	rows := map[int32]string{}
	for _, m := range trajectory.Messages {
		if m.Role == "tool" {
			rows[m.Turn] = m.Content
		}
	}
	for i, turn := range made {
		want := events.RoomText(turn.PromptTokens+turn.CompletionTokens, limit)
		if i == len(made)-1 {
			want = ""
		}
		if turn.RoomTold != want || i < len(made)-1 && !strings.HasSuffix(rows[int32(i)], "\n\n"+want) {
			t.Errorf("turn %d told %q, want %q; the trajectory has %q", i, turn.RoomTold, want, rows[int32(i)])
		}
	}
}

// TestTellRoomByTokens: the model is told behind each turn's results how many tokens it has used of
// the server's context, and what it saw is what is trained on.
func TestTellRoomByTokens(t *testing.T) {
	log := natstest.Log(t)
	for run, kind := range map[string]struct {
		limit  int
		change func(*runfile.RunConfig)
	}{
		"server": {5000, tellRoom},
		"run":    {900, func(c *runfile.RunConfig) { c.Limits.TellRoom, c.Limits.Tokens = true, 900 }},
		"silent": {0, func(*runfile.RunConfig) {}},
	} {
		const calls = 2
		s := thinker(t, "Qwen3", calls)
		s.Context = 5000
		open(t, log, run, s.URL, func(c *runfile.RunConfig) {
			byTokensOnly(c)
			kind.change(c)
		})
		for i := range calls {
			stop := start(t, log, nil) // another generator for each turn tells the same
			turn := turns(t, log, run, i+1)[i]
			stop()
			answerTools(t, log, run, turn)
		}
		stop := start(t, log, nil)
		_, trajectory := finished(t, log, run)
		stop()
		made, samples := turns(t, log, run, calls+1), trajectory.Samples()
		if len(samples) != 1 {
			t.Fatalf("%s: %d samples", run, len(samples))
		}
		text := s.Tokenizer.Decode(samples[0].Tokens)
		if kind.limit == 0 {
			if strings.Contains(text, "were used") {
				t.Errorf("a run that does not ask for it has %q", text)
			}
			continue
		}
		checkTold(t, made, trajectory, kind.limit)
		for _, turn := range made[:calls] {
			if strings.Count(text, turn.RoomTold) != 1 {
				t.Errorf("%s: %q is not once in %q", run, turn.RoomTold, text)
			}
		}
	}
}

// TestTellRoomByMessages: by messages it is the same, from the first turn on, and a
// repeated request says the same.
func TestTellRoomByMessages(t *testing.T) {
	log := natstest.Log(t)
	asked := make(chan []inference.Message, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, listVLLM, 4000) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var in inference.Request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		asked <- in.Messages
		said := `{"content":"Done."}`
		if len(in.Messages) < 6 {
			said = `{"content":"","tool_calls":[{"id":"a","function":{"name":"read_file","arguments":"{\"path\":\"a\"}"}},{"id":"b","function":{"name":"read_file","arguments":"{\"path\":\"b\"}"}}]}`
		}
		fmt.Fprintf(w, `{"choices":[{"finish_reason":"stop","message":%s}],"usage":{"prompt_tokens":%d,"completion_tokens":7}}`,
			said, 100*len(in.Messages))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	open(t, log, "r", server.URL, tellRoom)
	start(t, log, nil)
	answerTools(t, log, "r", turns(t, log, "r", 1)[0])
	answerTools(t, log, "r", turns(t, log, "r", 2)[1])
	_, trajectory := finished(t, log, "r")
	checkTold(t, turns(t, log, "r", 3), trajectory, 4000)
	<-asked
	for _, told := range []struct{ turn, messages int }{{0, 5}, {1, 8}} {
		messages := <-asked
		if len(messages) != told.messages {
			t.Fatalf("%d messages, want %d", len(messages), told.messages)
		}
		first, last := messages[len(messages)-2], messages[len(messages)-1]
		if want := turns(t, log, "r", 3)[told.turn].RoomTold; want == "" || !strings.HasSuffix(last.Content, want) ||
			strings.Contains(first.Content, "were used") {
			t.Errorf("the model was told %q and %q, want %q at the end", first.Content, last.Content, want)
		}
	}
	if done := servicetest.All(t, log, "r", events.ToolsCompletedType); strings.Contains(string(done[0].Data),
		"were used") {
		t.Error("the tools' own answer was changed")
	}
}
