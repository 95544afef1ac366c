package intake

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// Quotas bound what one sender may hand in: the outsiders of one role in one run, for one feed or
// policy where the role has one. Senders that name no known run or policy get strangersShare times
// as much together. Each intake process counts for itself, from its start. Zero is no bound.
type Quotas struct {
	MessagesPerMinute float64
	// BytesPerMinute are those of messages, and of the objects that they name and the intake reads.
	BytesPerMinute float64
	// DeadLettersPerDay are the refused messages that are recorded; others
	// are answered and counted.
	DeadLettersPerDay float64
	// DeadLettersFor is how long a refused message stays on the log. Its body is garbage then.
	DeadLettersFor time.Duration
}

// DefaultQuotas let some thousand rollouts state their turns, and bring their files, at once.
func DefaultQuotas() Quotas {
	return Quotas{MessagesPerMinute: 60_000, BytesPerMinute: 8 << 30, DeadLettersPerDay: 1000,
		DeadLettersFor: 7 * 24 * time.Hour}
}

// Validate says which quota cannot be.
func (q Quotas) Validate() error {
	switch {
	case !(q.MessagesPerMinute >= 0 && q.BytesPerMinute >= 0 && q.DeadLettersPerDay >= 0):
		return fmt.Errorf("quotas of the intake: %g messages and %g bytes a minute, %g dead letters a day: must not be negative",
			q.MessagesPerMinute, q.BytesPerMinute, q.DeadLettersPerDay)
	case q.DeadLettersFor < time.Second && q.DeadLettersFor != 0:
		return fmt.Errorf("quotas of the intake: dead letters are kept for %s: must be at least 1s, or 0 for ever",
			q.DeadLettersFor)
	}
	return nil
}

// allowance is a bucket that holds what one period allows.
type allowance struct {
	most   float64 // 0: no bound
	period time.Duration
	spent  float64
	at     time.Time
}

// take takes n out of the bucket, or says after what time that would be possible. More than the
// bucket holds is taken when it is full.
func (a *allowance) take(now time.Time, n float64) time.Duration {
	if a.most == 0 {
		return 0
	}
	if past := now.Sub(a.at); past > 0 {
		a.spent, a.at = max(0, a.spent-float64(a.most*(float64(past)/float64(a.period)))), now
	}
	n = min(n, a.most)
	if missing := a.spent + n - a.most; missing > 0 {
		return time.Duration(float64(missing / a.most * float64(a.period)))
	}
	a.spent += n
	return 0
}

// account is what one sender has used.
type account struct {
	name                     string
	mu                       sync.Mutex
	messages, bytes, letters allowance
	// over and silent count what was refused since the last log line.
	over, silent int
	logged       time.Time
}

// rememberedSenders bounds the senders that are counted at once, and likewise the strangers: those
// cannot push the others out.
const rememberedSenders = 4096

// strangersShare is how many senders' quotas all strangers have together. One of them alone cannot
// use that up, so others can still open runs.
const strangersShare = 10

// meter counts what outsiders hand in.
type meter struct {
	quotas  Quotas
	logger  *slog.Logger
	now     func() time.Time
	counted *prometheus.CounterVec

	known, strangers *lru.Cache[string, *account]
	// together is the account of all strangers.
	together *account
}

func newMeter(q Quotas, env pipeline.Env) (*meter, error) {
	known, err := lru.New[string, *account](rememberedSenders)
	if err != nil {
		return nil, err
	}
	strangers, err := lru.New[string, *account](rememberedSenders)
	if err != nil {
		return nil, err
	}
	counted, err := pipeline.ShareMetric(env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rondo_intake_submissions_total",
		Help: "Submissions by role of the sender and outcome: recorded, refused (with a dead letter), unrecorded (refused without one), over_quota.",
	}, []string{"role", "outcome"}))
	return &meter{
		quotas: q, logger: env.Logger, now: time.Now, counted: counted,
		known: known, strangers: strangers, together: newAccount("all senders of unknown runs and policies together", q,
			strangersShare),
	}, err
}

func newAccount(name string, q Quotas, share float64) *account {
	return &account{
		name:     name,
		messages: allowance{most: float64(q.MessagesPerMinute * share), period: time.Minute},
		bytes:    allowance{most: float64(q.BytesPerMinute * share), period: time.Minute},
		letters:  allowance{most: float64(q.DeadLettersPerDay * share), period: 24 * time.Hour},
	}
}

// accounts are those that pay for a sender.
func (m *meter) accounts(from sender) []*account {
	if from.stranger {
		return []*account{m.account(m.strangers, from.name), m.together}
	}
	return []*account{m.account(m.known, from.name)}
}

func (m *meter) account(accounts *lru.Cache[string, *account], name string) *account {
	if a, ok := accounts.Get(name); ok {
		return a
	}
	fresh := newAccount(name, m.quotas, 1)
	if a, ok, _ := accounts.PeekOrAdd(name, fresh); ok {
		return a
	}
	return fresh
}

// count counts what became of a message.
func (m *meter) count(from sender, outcome string) {
	m.counted.WithLabelValues(from.role, outcome).Inc()
}

// message counts a message with its own bytes, or refuses it.
func (m *meter) message(from sender, msg pipeline.Message) error {
	return m.charge(from, 1, float64(len(msg.Data)))
}

// read counts bytes that the intake is to read for a sender, or refuses to.
func (m *meter) read(from sender, bytes int64) error { return m.charge(from, 0, float64(bytes)) }

// charge takes messages and bytes from a sender's accounts, or refuses with the time
// after which to ask again.
func (m *meter) charge(from sender, messages, bytes float64) error {
	for _, a := range m.accounts(from) {
		if err := m.pay(a, messages, bytes); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) pay(a *account, messages, bytes float64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := m.now()
	wait, what := a.messages.take(now, messages), fmt.Sprintf("%g messages", a.messages.most)
	if wait == 0 {
		wait, what = a.bytes.take(now, bytes), fmt.Sprintf("%g bytes", a.bytes.most)
	}
	if wait == 0 {
		return nil
	}
	a.over++
	m.log(a, now)
	return &refusal{reason: fmt.Sprintf("%s: more than %s within a minute: submit it again in %s", a.name, what,
		wait.Round(time.Millisecond)), again: max(wait, leastWait)}
}

// leastWait is the shortest time after which a message is asked for again: the intake's stream
// drops a repetition that comes at once.
var leastWait = 2 * topology.Stream(events.IntakeStream).Duplicates

// records reports whether another refused message of a sender is to be recorded.
func (m *meter) records(from sender) bool {
	for _, a := range m.accounts(from) {
		if !m.letter(a) {
			return false
		}
	}
	return true
}

func (m *meter) letter(a *account) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := m.now()
	if a.letters.take(now, 1) == 0 {
		return true
	}
	a.silent++
	m.log(a, now)
	return false
}

// log tells of a sender that is over its quotas, once a minute.
func (m *meter) log(a *account, now time.Time) {
	if now.Sub(a.logged) < time.Minute {
		return
	}
	m.logger.Warn("intake quota exceeded", "sender", a.name, "refused", a.over, "dead_letters_not_recorded", a.silent)
	a.logged, a.over, a.silent = now, 0, 0
}
