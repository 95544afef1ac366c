package long

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/bench/plane"
	"github.com/rondo-rl/rondo/events"
)

// meter takes the processor time at the tenths of the rollouts, which go in step as nearly as makes no difference.
type meter struct {
	mu       sync.Mutex
	want     int // turns of all rollouts
	asked    int
	at       [parts + 1]time.Duration
	progress func(asked int)
}

func (m *meter) turn(int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked < m.want && m.asked%(m.want/parts) == 0 && m.asked/(m.want/parts) < parts {
		m.at[m.asked/(m.want/parts)] = plane.ProcessorTime()
	}
	m.asked++
	if m.asked == m.want {
		m.at[parts] = plane.ProcessorTime()
	}
	m.progress(m.asked)
}

// perTurn is the time of a turn, by tenths.
func (m *meter) perTurn() (byTenth [parts]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := m.want / parts
	for i := range byTenth {
		n := size
		if i == parts-1 {
			n = m.want - size*(parts-1)
		}
		byTenth[i] = milliseconds(m.at[i+1]-m.at[i]) / float64(n)
	}
	return byTenth
}

// measure lets rollouts of one length come to their verdicts.
func (p *bench) measure(ctx context.Context, o Options, turns int, now func(string)) (l Length, err error) {
	l = Length{Turns: turns}
	m := &meter{want: turns * o.Rollouts, progress: func(asked int) {
		now(fmt.Sprintf("rollouts of %d turns: %d of %d turns", turns, asked, turns*o.Rollouts))
	}}
	p.server.Begin(turns, o.Rollouts, m.turn)
	cfg, err := p.config(ctx, o, turns)
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
	if m.asked != m.want {
		return l, fmt.Errorf("the server was asked for %d turns, not %d: turns that are asked for again spoil the figures", m.asked, m.want)
	}
	p.server.Quiet()
	requests, err := requests(ctx, p.server, p.url, turns, o.Rollouts)
	if err != nil {
		return l, fmt.Errorf("requests alone: %w", err)
	}
	for i, all := range m.perTurn() {
		l.CPU, l.Requests = l.CPU+all/parts, l.Requests+requests[i]/parts
		l.Parts = append(l.Parts, all-requests[i])
	}
	l.Own = l.CPU - l.Requests
	if err := p.bytes(ctx, run, o.Rollouts, &l); err != nil {
		return l, err
	}
	p.server.Begin(turns, 0, nil)
	l.Heap = heap()
	l.RSS, err = plane.Resident()
	return l, err
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

// packedTokens is what ids and log-probabilities take of a turn's event: what it has more than the same without them.
func packedTokens(t events.TurnSampled) (int, error) {
	whole, err := events.Encode(t)
	if err != nil {
		return 0, err
	}
	t.TokenIDs, t.Logprobs = nil, nil
	without, err := events.Encode(t)
	return len(whole) - len(without), err
}
