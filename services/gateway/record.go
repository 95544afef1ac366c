package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
	"github.com/rondo-rl/rondo/storage"
)

// record puts an answer on the log as the rollout's next turn. Calls of one rollout may race, here
// and in other gateways: then this one has another number, and begins a segment where another has
// gone on with its turn before.
func (g *Gateway) record(ctx context.Context, t *tenant, ro *rollout, a *ask, sampled *fleet.Answer) (*answer, error) {
	defer g.locks.take(name(ro.Run, ro.ID))()
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return nil, ctx.Err() // nobody waits for it, so it is no turn
		}
		now := ro // whose chain refuses what does not follow
		if try > 0 || t.agent == nil || !t.agent.Knows(&ro.Rollout) {
			var err error
			if now, err = g.newest(ctx, ro); err != nil {
				return nil, err
			}
		}
		if err := now.open(); err != nil {
			return nil, err
		}
		if err := t.agent.mayRecord(now); err != nil {
			return nil, err
		}
		if now.moved(a, t.agent.behind()) {
			return nil, errMoved
		}
		turn, prompt, err := sampled.TurnAs(len(now.Turns), a.cfg.AssumedVersion()) // it may have another number by now
		if err != nil && !errors.Is(err, inference.ErrTokens) {
			return nil, err
		}
		if a.server != nil {
			prompt = nil
			asText(&turn)
		}
		if a.shows() {
			prompt = withoutPlaceholders(&turn, prompt)
			if sampled.Response.Usage.PromptTokens == 0 && turn.TokensEstimated {
				a.estimateImages(&turn)
			}
		}
		if len(a.Forward["tools"]) == 0 {
			turn.Unoffered()
		}
		a.noteSampling(&turn, sampled)
		if t.agent != nil { // the intake judges what harnesses state
			turn.RequestDigest = a.digest
			if err := g.log.MarkVersions(ctx, now.cfg.Policy, now.Started.PolicyVersion, &turn); err != nil {
				return nil, err
			}
		}
		if err := g.place(ctx, now, a, sampled, prompt, &turn); err != nil {
			return nil, err
		}
		turn.Conversation = now.conversation(a, t.agent.behind())
		id, err := contentID(ro, turn)
		if err != nil {
			return nil, err
		}
		if err = g.stateTurn(ctx, t, now, id, turn); err == nil {
			return newAnswer(ro, turn, prompt, sampled.Response), nil
		}
		again, reload := g.newest(ctx, ro)
		if reload != nil || len(again.Turns) == turn.Turn && again.Tail == now.Tail || try >= ro.cfg.Limits.Turns {
			return nil, refused(err)
		}
		if len(again.Turns) <= turn.Turn {
			continue // a remark came between, or the log has lost turns
		}
		if stands, err := contentID(again, again.Turns[turn.Turn]); err == nil && stands == id {
			t.agent.recorded(turn)
			// it is this one, and only the intake's answer was lost
			return newAnswer(ro, turn, prompt, sampled.Response), nil
		}
	}
}

// stateTurn puts a turn on the log: by the intake, or behind the last link that is known where
// the rollout is an agent's.
func (g *Gateway) stateTurn(ctx context.Context, t *tenant, ro *rollout, id string, turn events.TurnSampled) error {
	if t.agent == nil {
		return g.state(ctx, t, ro.Run, events.TurnSampledType, ro.ID, id, turn)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTime)
	defer cancel()
	fact, err := ro.Next(events.TurnSampledType, events.Ordinal(turn.Turn), turn)
	if err != nil {
		return err
	}
	fact.Route, fact.Source = runfile.RouteFinal, topology.ToolRunner
	_, adopted, err := g.publish(ctx, []events.Event{fact})
	if err == nil && adopted {
		return errAdopted
	}
	if err == nil {
		t.agent.recorded(turn)
	}
	return err
}

// errAdopted says that another turn stands in the place of this one, or this
// one that was stated before.
var errAdopted = errors.New("the turn's place is taken")

func newAnswer(ro *rollout, turn events.TurnSampled, prompt []int32, response *inference.Response) *answer {
	n := &answer{Answer: &dialects.Answer{ID: fmt.Sprintf("%s-%d", name(ro.Run, ro.ID), turn.Turn),
		Model: cmp.Or(turn.AnsweredBy(), ro.cfg.Policy), Created: turn.StartedAt, Turn: turn, Prompt: prompt}}
	choice := response.Choices[0]
	if turn.Reasoning != nil {
		n.Reasoning = turn.Reasoning.Text
	}
	if content := choice.Logprobs.Content; len(content) == len(turn.Logprobs) {
		for _, token := range content {
			n.Texts = append(n.Texts, token.Token)
		}
	}
	return n
}

// contentID is the id under which a turn is stated: two gateways that state different turns in one
// place must not be taken for one that repeats itself.
func contentID(ro *rollout, turn events.TurnSampled) (string, error) {
	body, err := json.Marshal(turn)
	if err != nil {
		return "", err
	}
	return storage.Digest(append(fmt.Appendf(nil, "%s/%s/", ro.Run, ro.ID), body...)), nil
}
