package long

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events"
)

// measure lets rollouts of one length come to their verdicts.
func (p *bench) measure(ctx context.Context, o Options, turns int, now func(string)) (l Length, err error) {
	l = Length{Turns: turns}
	m := &meter{
		turns: turns, rollouts: o.Rollouts,
		requests: func(ctx context.Context, from, to int) (cost, error) {
			return requests(ctx, p.Server, p.URL, o.Rollouts, from, to)
		},
		progress: func(asked int) {
			now(fmt.Sprintf("rollouts of %d turns: %d of %d turns", turns, asked, turns*o.Rollouts))
		},
	}
	p.Server.Begin(turns, m.gates(), m.turn)
	cfg, err := p.Config(ctx, 1, o.Rollouts, turns)
	if err != nil {
		return l, err
	}
	began := time.Now()
	run, err := p.Open(ctx, cfg)
	if err != nil {
		return l, err
	}
	if err := p.scored(ctx, run, turns, o.Rollouts); err != nil {
		return l, err
	}
	l.Seconds = time.Since(began).Seconds()
	all, alone, err := m.results()
	if err != nil {
		return l, err
	}
	l.take(all, alone)
	if err := p.bytes(ctx, run, o.Rollouts, &l); err != nil {
		return l, err
	}
	p.Server.Begin(turns, nil, nil)
	l.Heap = heap()
	l.RSS, err = figures.Resident()
	return l, err
}

// take takes what a turn uses, with everything and of its request alone.
func (l *Length) take(byTenth, requests [parts]cost) {
	for tenth, all := range byTenth {
		alone := requests[tenth]
		own := all.less(alone)
		l.CPU, l.Requests, l.Own = l.CPU+all.ms/parts, l.Requests+alone.ms/parts, l.Own+own.ms/parts
		l.Allocated, l.AllocatedRequests = l.Allocated+own.kb/parts, l.AllocatedRequests+alone.kb/parts
		l.Objects = l.Objects + own.objects/parts
		l.Parts, l.AllocatedParts, l.ObjectsParts = append(l.Parts, own.ms), append(l.AllocatedParts, own.kb),
			append(l.ObjectsParts, own.objects)
	}
}

var errScored = errors.New("all are scored")

// scored waits until all rollouts of a run are, and checks that they went the whole way.
func (p *bench) scored(ctx context.Context, run string, turns, rollouts int) error {
	n := 0
	err := p.Log.Follow(ctx, run, 1, "", func(e events.Event) error {
		switch e.Type {
		case events.RolloutFailedType, events.RunPausedType, events.RolloutRetriedType:
			return fmt.Errorf("%s: %s", e.ID, e.Data)
		case events.RolloutFinishedType:
			finished, err := events.Data[events.RolloutFinished](e)
			if err == nil && (finished.Turns != turns || finished.Samples != 1) {
				err = fmt.Errorf("%s: %d turns in %d samples", e.ID, finished.Turns, finished.Samples)
			}
			return err
		case events.RolloutScoredType:
			if n++; n == rollouts {
				return errScored
			}
		}
		return nil
	})
	if errors.Is(err, errScored) {
		return nil
	}
	return err
}

// bytes counts what turns and their tools take on the log.
func (p *bench) bytes(ctx context.Context, run string, rollouts int, l *Length) error {
	var all [parts]int
	sampled, tokens := 0, 0
	for e, err := range p.Log.All(ctx, run, 1) {
		if err != nil {
			return err
		}
		var turn int
		switch e.Type {
		case events.TurnSampledType:
			t, err := events.Data[events.TurnSampled](e)
			if err != nil {
				return err
			}
			p, err := packedTokens(t)
			if err != nil {
				return err
			}
			turn, tokens, sampled = t.Turn, tokens+p, sampled+len(t.TokenIDs)
		case events.ToolsCompletedType:
			t, err := events.Data[events.ToolsCompleted](e)
			if err != nil {
				return err
			}
			turn = t.Turn
		default:
			continue
		}
		all[min(parts-1, turn*parts/l.Turns)] += len(e.Subject()) + len(e.Data) + len(e.ID) + len(e.TraceParent)
	}
	for i, n := range all {
		in := (i+1)*l.Turns/parts - i*l.Turns/parts
		l.ByteParts = append(l.ByteParts, float64(n)/float64(in*rollouts))
		l.Bytes += float64(n) / float64(l.Turns*rollouts)
	}
	l.LogPerToken = float64(tokens) / float64(sampled)
	return nil
}

// packedTokens is what ids and log-probabilities take of a turn's event: what it has more
// than the same without them.
func packedTokens(t events.TurnSampled) (int, error) {
	whole, err := events.Encode(t)
	if err != nil {
		return 0, err
	}
	t.TokenIDs, t.Logprobs = nil, nil
	without, err := events.Encode(t)
	return len(whole) - len(without), err
}
