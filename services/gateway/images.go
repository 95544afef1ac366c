package gateway

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// shows reports whether a request's conversation has images.
func (a *ask) shows() bool {
	return slices.ContainsFunc(a.Conversation, func(m events.PromptMessage) bool { return len(m.Images) > 0 })
}

// maySee refuses a request with images where the run does not say that its models see them: who
// trains on its samples must know.
func (r *rollout) maySee(a *ask) error {
	if r.cfg.Vision || !a.shows() {
		return nil
	}
	return problem(http.StatusBadRequest, "invalid_request_error",
		"the conversation has an image, and run %s does not say that its model sees images: leave it out, or open a run with `vision: true` in its run file", r.Run)
}

// keep stores the images that are new in a request, whose place is known: what goes on with a turn
// repeats those that are on the log.
func (g *Gateway) keep(ctx context.Context, a *ask) error {
	for _, m := range a.Conversation[a.held:] {
		for _, i := range m.Images {
			if _, err := storage.PutBlob(ctx, g.log.Store(), a.Images[i.SHA256]); err != nil {
				return err
			}
		}
	}
	a.Images = nil // they are in the messages, too
	return nil
}

// sameImages reports whether two messages show the same images in the same places. Space before
// their words says nothing.
func sameImages(a, b events.PromptMessage) bool {
	return slices.EqualFunc(a.Images, b.Images, func(x, y storage.Image) bool {
		return x.Same(y) && x.At-leading(a.Content) == y.At-leading(b.Content)
	})
}

func leading(text string) int { return len(text) - len(strings.TrimLeft(text, " \t\r\n")) }

// withoutPlaceholders makes a turn text whose prompt has numbers that are no tokens: nobody knows
// which tokens stand for its images.
func withoutPlaceholders(turn *events.TurnSampled, prompt []int32) []int32 {
	if !tokencheck.Placeholders(prompt) {
		return prompt
	}
	turn.TextOnly, turn.TokenIDs, turn.Logprobs, turn.VersionSpans = true, nil, nil, nil
	turn.Lacks = append(turn.Lacks, events.LackImages)
	return nil
}

// pixelsPerToken is the estimate for servers that count no tokens: models cut images into patches
// of 28 by 28 pixels or so.
const pixelsPerToken = 28 * 28

// estimateImages takes the bytes of images out of an estimate of the prompt's tokens,
// and puts their pixels in.
func (a *ask) estimateImages(turn *events.TurnSampled) {
	for _, m := range a.Conversation {
		for _, i := range m.Images {
			turn.PromptTokens += i.Width*i.Height/pixelsPerToken - events.EstimatedTokens(
				base64.StdEncoding.EncodedLen(int(i.Size)))
		}
	}
	turn.PromptTokens = max(1, turn.PromptTokens)
}

// byChat are the causes of a segment that follow from asking by messages.
var byChat = []string{"", events.CauseThoughts, events.CauseDrift, events.CauseHistory}

// noteImages says of a turn that begins a segment that it was asked for by
// messages for its images' sake.
func (a *ask) noteImages(turn *events.TurnSampled) {
	if turn.NewSegment && a.shows() && a.cfg.EndpointAPI == runfile.APITokens &&
		slices.Contains(byChat, turn.SegmentCause) {
		turn.SegmentCause = events.CauseImages
	}
}
