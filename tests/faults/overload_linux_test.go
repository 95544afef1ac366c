package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/tests/program"
)

// How an overload goes.
const (
	measured    = time.Second // with as many submissions at once as keep the intake busy
	outsiders   = 64
	overloaded  = 3 * time.Second
	timesTaken  = 10
	remarkBytes = 8 << 10
	// keptMemory and half of the flood are what the plane's process may keep when a flood is over:
	// caches of the server and of the Log grow with it.
	keptMemory = 32 << 20
)

// flood is an open loop of submissions and what was answered to them.
type flood struct {
	mu       sync.Mutex
	taken    map[string]uint64 // id → sequence
	refused  map[string]int    // reason → times
	unstored int               // that the server refused before the intake saw them
	faults   []error
}

// overload submits remarks about rollouts that are over, ten times as many in a second as the plane
// was just seen to take, and holds the answers against the log.
func (tr *trial) overload(ctx context.Context) {
	t := tr.t
	over, err := tr.ended(ctx)
	if err != nil || len(over) == 0 {
		t.Errorf("%d rollouts are over, %v", len(over), err)
		return
	}
	rate := 0.0
	for rate == 0 && ctx.Err() == nil { // another fault may keep it from taking any for a while
		rate = tr.capacity(ctx, over)
	}
	before := tr.memory()
	f, sent, err := tr.flood(ctx, over, int(timesTaken*rate))
	if err != nil {
		t.Error(err)
		return
	}
	after := int64(0)
	alone := len(tr.orders.Faults) == 1 // other faults change what the process holds, or which process it is
	// it gives back what it does not use once a second, and the server forgets what it
	// has read after some seconds
	program.Eventually(t, func() error {
		after = tr.memory()
		if alone && after-before > keptMemory+int64(sent)*remarkBytes/2 {
			return fmt.Errorf("the plane's process had %d MiB, and %d MiB after a flood of %d MiB", before>>20,
				after>>20, sent*remarkBytes>>20)
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("the plane took %.0f submissions in a second; of %d (%d MiB) in %s it took %d, and refused %v and %d unstored; it had %d MiB before, and %d MiB after",
		rate, sent, sent*remarkBytes>>20, overloaded, len(f.taken), f.refused, f.unstored, before>>20, after>>20)
	for _, err := range f.faults {
		t.Error(err)
	}
	there := map[string]uint64{}
	for e, err := range tr.log.All(ctx, run, 1) {
		if err != nil {
			t.Error(err)
			return
		}
		there[e.ID] = e.Seq
	}
	for id, seq := range f.taken {
		if there[id] != seq {
			t.Errorf("%s was acknowledged at sequence %d, and is at %d", id, seq, there[id])
		}
	}
}

// ended are the rollouts whose outcome is on the log.
func (tr *trial) ended(ctx context.Context) (over []string, err error) {
	in, err := tr.log.Incarnation(ctx, run)
	if err != nil {
		return nil, err
	}
	for e, err := range tr.log.All(ctx, run, 1) {
		if err != nil {
			return nil, err
		}
		if e.Type == events.RolloutScoredType {
			over = append(over, e.Entity)
		}
		if e.Seq >= in.LastSeq {
			break
		}
	}
	return over, nil
}

// remark is the n-th of a series: one in ten is about a rollout that is over, and the others about
// one that there is not. One in a hundred comes again.
func remark(over []string, series string, n int) eventlog.Submission {
	if n%100 == 90 {
		n -= 60
	}
	rollout, id := fmt.Sprintf("%s-%d", nobody, n), fmt.Sprint(series, "-", n)
	if n%10 == 0 {
		rollout = over[n/10%len(over)]
	}
	return eventlog.Submission{Run: run, Type: events.RolloutAnnotatedType, Entity: rollout, ID: id,
		Data: events.RolloutAnnotated{Text: strings.Repeat("x", remarkBytes)}}
}

// capacity is how many submissions the plane takes in a second.
func (tr *trial) capacity(ctx context.Context, over []string) float64 {
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, measured)
	defer cancel()
	var work sync.WaitGroup
	var next, answered atomic.Int64
	for range outsiders {
		work.Go(func() {
			for asking.Err() == nil {
				_, err := tr.log.Submitter.Submit(asking,
					remark(over, fmt.Sprint("measure-", began.UnixNano()), int(next.Add(1))))
				if err == nil || errors.Is(err, eventlog.ErrRefused) {
					answered.Add(1)
				}
			}
		})
	}
	work.Wait()
	return float64(answered.Load()) / time.Since(began).Seconds()
}

// flood submits at a rate, whatever is answered, and waits until the intake has seen all of it.
func (tr *trial) flood(ctx context.Context, over []string, rate int) (f *flood, sent int, err error) {
	f = &flood{taken: map[string]uint64{}, refused: map[string]int{}}
	nc := tr.log.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.Subscribe(inbox+".*", f.answered(inbox))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, 0, err
	}
	body, err := json.Marshal(remark(over, "", 0).Data)
	if err != nil {
		return nil, 0, err
	}
	for began := time.Now(); time.Since(began) < overloaded; retry.Sleep(ctx, 5*time.Millisecond) {
		for ; sent < int(time.Since(began).Seconds()*float64(rate)); sent++ {
			r := remark(over, "flood", sent)
			m := nats.NewMsg(events.IntakeSubject(r.Run, r.Type, r.Entity))
			m.Data, m.Reply = body, inbox+".stored"
			m.Header = nats.Header{events.HeaderMessageID: {r.ID}, events.HeaderReply: {inbox + ".answer"}}
			if err := nc.PublishMsg(m); err != nil {
				f.mu.Lock()
				f.refuse(err.Error())
				f.mu.Unlock()
			}
		}
	}
	for !tr.settled(ctx) {
		if !retry.Sleep(ctx, 100*time.Millisecond) {
			return nil, sent, errors.New("the intake does not come to the end of a flood")
		}
	}
	return f, sent, nc.FlushWithContext(ctx)
}

// settled reports whether the intake has settled all submissions. The consumers of its queues
// tell, not the length of its stream: a server whose disk fails for a while may keep what is
// settled (docs/upstream).
func (tr *trial) settled(ctx context.Context) bool {
	s, err := tr.log.JetStream().Stream(ctx, events.IntakeStream)
	if err != nil {
		return false
	}
	queues := s.ListConsumers(ctx)
	for c := range queues.Info() {
		if c.NumPending > 0 || c.NumAckPending > 0 {
			return false
		}
	}
	return queues.Err() == nil
}

// answered takes what the server and the intake answer.
func (f *flood) answered(inbox string) nats.MsgHandler {
	return func(m *nats.Msg) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if m.Subject == inbox+".stored" {
			var ack struct {
				Error *struct {
					Description string `json:"description"`
				} `json:"error"`
			}
			err := json.Unmarshal(m.Data, &ack)
			switch {
			case err != nil:
				f.faults = append(f.faults, err)
			case ack.Error != nil:
				f.unstored++
				f.refuse(ack.Error.Description)
			}
			return
		}
		var answer events.IntakeAnswer
		err := json.Unmarshal(m.Data, &answer)
		_, again := f.taken[answer.ID]
		switch {
		case err != nil:
			f.faults = append(f.faults, err)
		case answer.Error != "":
			f.refuse(answer.Error)
		case again && f.taken[answer.ID] != answer.Sequence:
			f.faults = append(f.faults, fmt.Errorf("%s was acknowledged at %d and at %d", answer.ID,
				f.taken[answer.ID], answer.Sequence))
		default:
			f.taken[answer.ID] = answer.Sequence
		}
	}
}

// refuse counts a refusal by its reason, without the names in it.
func (f *flood) refuse(reason string) { f.refused[named.ReplaceAllString(reason, "…")]++ }

var named = regexp.MustCompile(`nobody-[0-9]+|in [0-9.]+m?s`)

// memory is what the plane's process has, in bytes; 0 while none lives.
func (tr *trial) memory() int64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.plane == nil {
		return 0
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(tr.plane.Process.Pid), "status"))
	if err != nil {
		tr.t.Error(err)
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	tr.t.Error("/proc has no VmRSS")
	return 0
}
