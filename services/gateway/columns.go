package gateway

import (
	"context"
	"net/http"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/storage"
)

// withColumns asks for what the run wants beside tokens. Servers of chats name the experts of the
// whole conversation, so they are asked only where that is not too long for an answer.
func withColumns(body map[string]any, ro *rollout, a *ask) map[string]any {
	want := a.cfg.TokenColumns
	if want == nil {
		return body
	}
	if want.TopLogprobs > 0 {
		// by vLLM by their ids, not their texts
		body["top_logprobs"], body["return_tokens_as_token_ids"] = want.TopLogprobs, true
	}
	if want.SamplingMask {
		body["return_sampling_mask"] = true
	}
	longest := 0
	for _, t := range ro.Turns {
		longest = max(longest, t.Used())
	}
	if e := want.RoutedExperts; e != nil && longest+a.sampling.MaxTokens <= e.Rows(widestExpert) {
		body["return_routed_experts"] = true
	}
	return body
}

// widestExpert is the most bytes in which a server writes the number of an expert.
const widestExpert = 4

// place says where a turn belongs in its rollout, and stores what its answer has beside its tokens.
func (g *Gateway) place(ctx context.Context, ro *rollout, a *ask, sampled *fleet.Answer, prompt []int32,
	turn *events.TurnSampled) error {
	t := newTree(ro.Turns)
	t.place(a, prompt, turn)
	a.noteImages(turn)
	routed := 0
	if !turn.NewSegment && turn.After != nil {
		routed = fleet.Routed(t.upTo(*turn.After))
	}
	if err := sampled.Keep(ctx, g.log.Store(), ro.cfg.TokenColumns, turn, routed); err != nil {
		return failed(ctx, err)
	}
	if !turn.NewSegment || a.routed == 0 {
		return nil
	}
	if _, extends := t.begins(prompt, a.after); !extends {
		return nil // so all were asked for
	}
	if ro.cfg.TokenColumns.Required {
		return problem(http.StatusBadGateway, events.ClassBadResponse,
			"another call has gone on with turn %d meanwhile, and the answer says nothing of its tokens' experts: try again",
			a.after)
	}
	withoutExperts(turn)
	return nil
}

func ofExperts(c storage.TokenColumn) bool { return c.Name == runfile.ColumnRoutedExperts }

// withoutExperts takes out of a turn that begins a segment what is said of its tokens' experts, as
// that does not begin with the segment.
func withoutExperts(turn *events.TurnSampled) {
	turn.Columns = slices.DeleteFunc(slices.Clone(turn.Columns), ofExperts)
	turn.Lacks = append(slices.Clip(turn.Lacks), runfile.ColumnRoutedExperts)
}
