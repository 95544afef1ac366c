package generator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

var mixture = tokenstest.Mixture{Layers: 3, TopK: 2, Experts: 64, Width: 1}

const topK = 3

// withColumns has a run ask for all token columns.
func withColumns(c *runfile.RunConfig) {
	byTokensOnly(c)
	k := 20
	c.Sampling.TopK = &k
	c.TokenColumns = &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: mixture.Layers,
		TopK: mixture.TopK, Experts: mixture.Experts}, TopLogprobs: topK, SamplingMask: true}
}

// rowsOf are the rows of a sample's column by its tokens; of sampling masks the ids.
func rowsOf(t *testing.T, log *eventlog.Log, s storage.Sample, name string) map[int][]byte {
	t.Helper()
	found := map[int][]byte{}
	for _, c := range s.Columns {
		if c.Name != name {
			continue
		}
		file, err := storage.GetBlob(t.Context(), log.Store(), c.Object)
		if err != nil {
			t.Fatal(err)
		}
		data := file[10+int(binary.LittleEndian.Uint16(file[8:])):]
		size := map[string]int{runfile.ColumnRoutedExperts: mixture.Layers * mixture.TopK,
			runfile.ColumnTopLogprobs: 8 * topK}[name]
		for i := range int(c.Length) {
			row := int(c.Row) + i
			begin, end := size*row, size*(row+1)
			if name == runfile.ColumnSamplingMask {
				at := func(i int) int { return int(binary.LittleEndian.Uint32(data[4*i:])) }
				rows := at(0)
				begin = 4 * (1 + rows)
				for k := range row {
					begin += 4 * at(1+k)
				}
				end = begin + 4*at(1+row)
			}
			found[int(c.Start)+i] = data[begin:end]
		}
	}
	return found
}

// checkColumns checks that what a sample's columns say of a token is what the server said of that
// token in its place, and how many tokens they say nothing of.
func checkColumns(t *testing.T, log *eventlog.Log, name string, s storage.Sample, experts bool) (unknown int) {
	t.Helper()
	rows := rowsOf(t, log, s, runfile.ColumnRoutedExperts)
	for token, row := range rows {
		var want []byte
		for layer := range mixture.Layers {
			for rank := range mixture.TopK {
				want = append(want, byte(mixture.Expert(s.Tokens, token, layer, rank)))
			}
		}
		if !bytes.Equal(row, want) {
			t.Errorf("%s: token %d of %d has the experts %v, want %v", name, token, len(s.Tokens), row, want)
		}
	}
	if !experts {
		rows = nil
	}
	tops, masks := rowsOf(t, log, s, runfile.ColumnTopLogprobs), rowsOf(t, log, s, runfile.ColumnSamplingMask)
	for token, sampled := range s.LossMask {
		if top := tops[token]; sampled != (top != nil) {
			t.Errorf("%s: token %d sampled: %v, likely ones %v", name, token, sampled, top)
		} else if sampled {
			id, logprob := int32(binary.LittleEndian.Uint32(top)),
				math.Float32frombits(binary.LittleEndian.Uint32(top[4:]))
			if second := int32(binary.LittleEndian.Uint32(top[8:])); id != s.Tokens[token] || second != id+1 ||
				math.Abs(float64(logprob-s.SamplerLogprobs[token])) > 1e-6 {
				t.Errorf("%s: token %d is %d with %g, the likeliest one %d with %g, then %d", name, token,
					s.Tokens[token], s.SamplerLogprobs[token], id, logprob, second)
			}
		}
		if mask := masks[token]; mask != nil && int32(binary.LittleEndian.Uint32(mask)) != s.Tokens[token] {
			t.Errorf("%s: token %d has the mask %v", name, token, mask)
		} else if experts && sampled != (mask != nil) {
			t.Errorf("%s: token %d sampled: %v, mask %v", name, token, sampled, mask)
		}
	}
	return len(s.Tokens) - len(rows)
}

// TestTokenColumns: what servers say of tokens stays with these tokens, in rollouts with turns
// that the server gives up half way, with summaries, and with another generator for each turn,
// which has it delivered twice.
func TestTokenColumns(t *testing.T) {
	log := natstest.Log(t)
	for _, engine := range []string{"vllm", "sglang", "llamacpp"} {
		s := tokenstest.New(t, "Qwen3", nil)
		s.Masks, s.Mixture, s.Context = true, &mixture, 400
		var mu sync.Mutex
		r, turn, gaveUp := rand.New(rand.NewPCG(7, 7)), 0, false
		s.Say = func(prompt string) (string, string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(prompt, sumUp) {
				return s.Template.Answer("", "My summary.", ""), ""
			}
			if gaveUp = !gaveUp && r.IntN(3) == 0 && engine != "llamacpp"; gaveUp {
				return "<think>\nSome thoughts before", "abort"
			}
			if turn++; turn > 8 {
				return s.Template.Answer("Enough.", "Done.", ""), ""
			}
			return s.Template.Answer(fmt.Sprint("I think of number ", turn), "Reading.",
				"path"+string(rune('a'+turn))), ""
		}
		switch engine {
		case "sglang":
			s.SGLang()
		case "llamacpp":
			s.LlamaCPP()
		}
		open(t, log, engine, s.URL, func(c *runfile.RunConfig) {
			withColumns(c)
			summarising(nil)(c)
			c.Limits.Turns, c.Sampling.MaxTokens = 40, 100
		})
		stop := start(t, log, nil)
		var trajectory *storage.Trajectory
		for n := 1; trajectory == nil; n++ {
			last := turns(t, log, engine, n)[n-1]
			if last.Summary == nil && len(last.ToolCalls) == 0 {
				_, trajectory = finished(t, log, engine)
			} else if last.Summary == nil {
				stop()
				answerTools(t, log, engine, last)
				completed := servicetest.All(t, log, engine, events.ToolsCompletedType)
				// what it samples never comes onto the log
				if _, err := service(t, log).Handle(t.Context(),
					messageOf(log, completed[len(completed)-1])); err != nil {
					t.Log(err)
				}
				stop = start(t, log, nil)
			}
		}
		stop()
		samples := trajectory.Samples()
		if engine != "llamacpp" && len(samples) < 2 {
			t.Errorf("%s: %d samples: no summary", engine, len(samples))
		}
		for i, sample := range samples {
			if unknown := checkColumns(t, log, fmt.Sprint(engine, " sample ", i), sample,
				engine != "llamacpp"); engine != "llamacpp" && unknown != 1 {
				t.Errorf("%s: sample %d: the experts of %d tokens are not known, want those of the last", engine, i,
					unknown)
			}
		}
	}
}

// TestHostileColumns: what a server says beside its tokens and is not of them is left out, and the
// turn says so; where the run demands it, the try has failed.
func TestHostileColumns(t *testing.T) {
	log := natstest.Log(t)
	change := func(name string, to any) func(map[string]any) {
		return func(choice map[string]any) { choice[name] = to }
	}
	tops := func(entry ...any) func(map[string]any) {
		return func(choice map[string]any) {
			for _, e := range choice["logprobs"].(map[string]any)["content"].([]any) {
				e.(map[string]any)["top_logprobs"] = entry
			}
		}
	}
	other := func(m tokenstest.Mixture) *tokenstest.Mixture { return &m }
	start(t, log, nil)
	for i, c := range []struct {
		name    string
		lack    string
		change  func(map[string]any)
		mixture *tokenstest.Mixture
	}{
		{name: "none", lack: "routed_experts", change: change("routed_experts", nil)},
		{name: "of other layers", lack: "routed_experts",
			mixture: other(tokenstest.Mixture{Layers: 2, TopK: 3, Experts: 64, Width: 1})},
		{name: "of too many experts", lack: "routed_experts",
			mixture: other(tokenstest.Mixture{Layers: 3, TopK: 2, Experts: 200, Width: 1})},
		{name: "no base64", lack: "routed_experts", change: change("routed_experts", "*")},
		{name: "an object", lack: "routed_experts", change: change("routed_experts", map[string]any{"data": ""})},
		{name: "no file", lack: "routed_experts", change: change("routed_experts", "AAAA")},
		{name: "no mask", lack: "sampling_mask", change: change("sampling_mask", nil)},
		{name: "masks without the tokens", lack: "sampling_mask", change: func(choice map[string]any) {
			list := choice["sampling_mask"].([][]int32)
			list[len(list)-1] = []int32{1 << 30}
		}},
		{name: "a mask too few", lack: "sampling_mask",
			change: func(choice map[string]any) { choice["sampling_mask"] = choice["sampling_mask"].([][]int32)[1:] }},
		{name: "tops that are texts", lack: "top_logprobs",
			change: tops(map[string]any{"token": "the", "logprob": -0.5})},
		{name: "tops above 1", lack: "top_logprobs", change: tops(map[string]any{"token_id": 1, "logprob": -0.1},
			map[string]any{"token_id": 2, "logprob": -0.1})},
		{name: "tops without end", lack: "top_logprobs",
			change: tops(slices.Repeat([]any{map[string]any{"token_id": 1, "logprob": -9}}, 100)...)},
		{name: "wide numbers", mixture: other(tokenstest.Mixture{Layers: 3, TopK: 2, Experts: 64, Width: 4})},
	} {
		s := thinker(t, "Qwen3", 0)
		s.Masks, s.Mixture = true, &mixture
		if c.mixture != nil {
			s.Mixture = c.mixture
		}
		s.Change = func(path string, answer map[string]any) {
			if strings.HasSuffix(path, "/generate") && c.change != nil {
				c.change(answer["choices"].([]any)[0].(map[string]any))
			}
		}
		run := fmt.Sprint("r", i)
		open(t, log, run, s.URL, withColumns)
		open(t, log, run+"-required", s.URL, func(cfg *runfile.RunConfig) {
			withColumns(cfg)
			cfg.TokenColumns.Required, cfg.Limits.Tries = true, 1
		})
		turn := turns(t, log, run, 1)[0]
		_, trajectory := finished(t, log, run)
		names := map[string]bool{}
		for _, column := range trajectory.Samples()[0].Columns {
			names[column.Name] = true
		}
		if c.lack == "" {
			finished(t, log, run+"-required")
			if len(turn.Lacks) > 0 || len(names) != 3 {
				t.Errorf("%s: the turn lacks %v and has %v", c.name, turn.Lacks, names)
			}
		} else {
			f := servicetest.WaitData[events.RolloutFailed](t, log, run+"-required", events.RolloutFailedType, rollout)
			if !slices.Equal(turn.Lacks, []string{c.lack}) || len(names) != 2 || names[c.lack] || turn.TextOnly {
				t.Errorf("%s: the turn lacks %v and has %v", c.name, turn.Lacks, names)
			}
			if f.Class != events.ClassBadResponse || !strings.Contains(f.Message, c.lack) {
				t.Errorf("%s: failed as %+v", c.name, f)
			}
		}
	}
}
