package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

const layers, expertsEach, likely = 2, 2, 2

// expert is the expert that a token of a sequence goes to.
func expert(ids []int32, token, layer, rank int) int32 {
	return (ids[token]*7 + int32(token*3+layer*5+rank)) % 64
}

// columned are the columns that a harness's run asks for.
func columned(required bool) func(*runfile.RunConfig) {
	return func(c *runfile.RunConfig) {
		k := 20
		c.Sampling.TopK, c.Sampling.MaxTokens = &k, 100
		c.TokenColumns = &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: layers, TopK: expertsEach,
			Experts: 64}, TopLogprobs: likely, SamplingMask: true, Required: required}
	}
}

// besides is what SGLang says in a chat: the experts of all tokens beside the choices, and masks in
// the choice's meta_info; likely tokens as vLLM has them.
func besides(whole, choice map[string]any, prompt, ids []int32) {
	var rows []byte
	all := slices.Concat(prompt, ids)
	for token := range len(all) - 1 {
		for layer := range layers {
			for rank := range expertsEach {
				rows = binary.LittleEndian.AppendUint32(rows, uint32(expert(all, token, layer, rank)))
			}
		}
	}
	whole["sglext"] = map[string]any{"routed_experts": base64.StdEncoding.EncodeToString(rows)}
	masks := [][]int32{}
	for _, id := range ids {
		masks = append(masks, []int32{id, id + 1})
	}
	choice["meta_info"] = map[string]any{"output_token_sampling_mask": masks}
	for i, entry := range choice["logprobs"].(map[string]any)["content"].([]map[string]any) {
		top := []any{}
		for n := range likely {
			top = append(top, map[string]any{"token": fmt.Sprintf("token_id:%d", ids[i]+int32(n)),
				"logprob": -float64(n) - 3})
		}
		entry["top_logprobs"] = top
	}
}

// measures: it is asked for one word, to see of which distribution log-probabilities are.
func measures(a ask) bool { return a.MaxTokens == 1 }

// TestColumns: a harness's rollouts have the columns that its run asks for, each token those that
// were said of it first, whatever course the harness takes. The harness sees nothing of them.
func TestColumns(t *testing.T) {
	t.Parallel()
	n := -1
	b := newBackend(t, func(_ int, a ask) said {
		if measures(a) {
			return said{status: http.StatusBadRequest}
		}
		n++
		if a.Tops != likely || !a.TokensAsIDs || !a.Experts || !a.Masks {
			t.Errorf("the server was asked with %+v", a)
		}
		return said{content: text(n), beside: besides}
	})
	p := newPlane(t, b.url, columned(true))
	m := p.start(nil)
	first := p.say(m, user("one"))
	second := p.say(m, append(first, user("two"))...)
	p.say(m, append(second, user("three"))...)
	p.say(m, append(first, user("another way"))...)
	if got := p.post(m.chat(), map[string]any{"messages": append(second, user("and another"))}, http.StatusOK,
		nil); strings.Contains(string(got.body), "sglext") {
		t.Errorf("the harness was told %s", got.body)
	}
	p.finish(m, 1)
	for _, s := range p.trajectory(m).Samples() {
		experts := rowsOf(t, p, s, runfile.ColumnRoutedExperts, layers*expertsEach)
		for token := range len(s.Tokens) - 1 {
			for i, got := range experts[token] {
				if want := expert(s.Tokens, token, i/expertsEach, i%expertsEach); int32(got) != want {
					t.Errorf("token %d of %d: expert %d, want %d", token, len(s.Tokens), got, want)
				}
			}
		}
		if known := len(experts); known != len(s.Tokens)-1 {
			t.Errorf("the experts of %d tokens of %d", known, len(s.Tokens))
		}
		tops := rowsOf(t, p, s, runfile.ColumnTopLogprobs, 8*likely)
		for token, sampled := range s.LossMask {
			if row := tops[token]; sampled != (row != nil) ||
				sampled && int32(binary.LittleEndian.Uint32(row)) != s.Tokens[token] {
				t.Errorf("token %d, sampled %v, has the likely tokens %v", token, sampled, row)
			}
		}
	}
	masks := 0
	for _, turn := range p.rollout(m).Turns {
		for _, c := range turn.Columns {
			if c.Name == runfile.ColumnSamplingMask {
				masks += int(c.Length) - len(turn.TokenIDs)
			}
		}
	}
	if masks != 0 {
		t.Errorf("%d sampled tokens have no mask, or two", masks)
	}
	p.prove(0)
}

// rowsOf are the rows of a sample's column by token.
func rowsOf(t *testing.T, p *plane, s storage.Sample, name string, size int) map[int][]byte {
	t.Helper()
	found := map[int][]byte{}
	for _, c := range s.Columns {
		if c.Name != name {
			continue
		}
		if name == runfile.ColumnRoutedExperts && c.Row > 0 {
			t.Errorf("%d rows are kept again", c.Row)
		}
		file, err := storage.GetBlob(t.Context(), p.log.Store(), c.Object)
		if err != nil {
			t.Fatal(err)
		}
		data := file[10+int(binary.LittleEndian.Uint16(file[8:])):]
		for i := range int(c.Length) {
			found[int(c.Start)+i] = data[size*(int(c.Row)+i):][:size]
		}
	}
	return found
}

// TestWrongColumns: what a server says and is not of the tokens is left out, and the turn says so.
// Where the run requires it, the harness gets an error that it may repeat.
func TestWrongColumns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lack   string
		change func(whole, choice map[string]any)
	}{
		"no experts": {runfile.ColumnRoutedExperts, func(whole, _ map[string]any) { delete(whole, "sglext") }},
		"a row too few": {runfile.ColumnRoutedExperts, func(whole, _ map[string]any) {
			whole["sglext"] = map[string]any{"routed_experts": base64.StdEncoding.EncodeToString(make([]byte,
				4*layers*expertsEach))}
		}},
		"experts as lists": {runfile.ColumnRoutedExperts,
			func(whole, _ map[string]any) { whole["sglext"] = map[string]any{"routed_experts": []int{1}} }},
		"masks of others": {runfile.ColumnSamplingMask, func(_, choice map[string]any) {
			choice["meta_info"] = map[string]any{"output_token_sampling_mask": [][]int32{{1}}}
		}},
		"no likely tokens": {runfile.ColumnTopLogprobs, func(_, choice map[string]any) {
			for _, entry := range choice["logprobs"].(map[string]any)["content"].([]map[string]any) {
				entry["top_logprobs"] = []any{}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, func(n int, a ask) said {
				if measures(a) {
					return said{status: http.StatusBadRequest}
				}
				return said{content: text(n), beside: func(whole, choice map[string]any, prompt, ids []int32) {
					besides(whole, choice, prompt, ids)
					c.change(whole, choice)
				}}
			})
			p := newPlane(t, b.url, columned(false))
			m := p.start(nil)
			p.say(m, user("one"))
			turn := p.rollout(m).Turns[0]
			has := func(column storage.TokenColumn) bool { return column.Name == c.lack }
			if !slices.Equal(turn.Lacks, []string{c.lack}) || slices.ContainsFunc(turn.Columns, has) ||
				len(turn.Columns) == 0 || turn.TextOnly {
				t.Errorf("the turn lacks %v and has %+v", turn.Lacks, turn.Columns)
			}
			p.finish(m, 1)
			p.prove(0)
			strict := newPlane(t, b.url, columned(true))
			m = strict.start(nil)
			refused := strict.post(m.chat(), map[string]any{"messages": []message{user("one")}},
				http.StatusBadGateway, nil)
			if !strings.Contains(string(refused.body), c.lack) ||
				!strings.Contains(string(refused.body), events.ClassBadResponse) || len(strict.rollout(m).Turns) > 0 {
				t.Errorf("the harness was told %s", refused.body)
			}
		})
	}
}
