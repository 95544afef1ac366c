package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
)

// machines are servers on disks of their own that forget at a power cut what was not synced.
type machines struct {
	*natstest.Members
	t        *testing.T
	dirs     []string
	disks    []*forgetful.Disk
	unmounts []func() error
}

// onDisks starts a cluster whose servers sync each write.
func onDisks(t *testing.T) *machines {
	t.Helper()
	m := &machines{t: t}
	home := t.TempDir()
	for i := range servers {
		m.dirs = append(m.dirs, filepath.Join(home, strconv.Itoa(i)))
		m.disks = append(m.disks, forgetful.NewJournal())
		m.unmounts = append(m.unmounts, nil)
		if err := os.Mkdir(m.dirs[i], 0o755); err != nil {
			t.Fatal(err)
		}
		m.mount(i)
	}
	t.Cleanup(func() {
		for _, unmount := range m.unmounts {
			_ = unmount()
		}
	})
	m.Members = natstest.StartMembersIn(t, m.dirs, true)
	return m
}

func (m *machines) mount(i int) {
	m.t.Helper()
	unmount, err := forgetful.Mount(m.disks[i], m.dirs[i])
	if err != nil {
		program.Missing(m.t, "%v", err)
	}
	m.unmounts[i] = unmount
}

// cut takes the power of some machines in the same moment, and gives it back. Of what was not
// synced chance keeps a part, nil nothing.
func (m *machines) cut(chance *rand.Rand, which ...int) {
	m.t.Helper()
	m.Kill(which...)
	for _, i := range which {
		if err := m.unmounts[i](); err != nil {
			m.t.Fatal(err)
		}
		m.disks[i] = m.disks[i].Cut(chance)
		m.mount(i)
	}
	for _, i := range which {
		m.Start(i)
	}
}

// answer is a message that was acknowledged.
type answer struct {
	stream, id string
	seq        uint64
}

// ledger is what writers and consumers were told.
type ledger struct {
	mu      sync.Mutex
	answers []answer
	handled map[string]bool // by id, what the consumers were given
	checked int             // of the answers, before the last cut
}

func (l *ledger) add(stream, id string, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, answer{stream, id, seq})
}

func (l *ledger) handle(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handled[id] = true
}

// load writes and consumes until its context ends.
type load struct {
	*machines
	log    *eventlog.Log
	life   int
	ledger *ledger
}

const powerRun, powerConsumer = "r", "C"

func (d *load) run(ctx context.Context) {
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() { d.chain(ctx, i) })
	}
	work.Go(func() { d.runs(ctx) })
	work.Go(func() { d.submissions(ctx) })
	for _, stream := range []string{events.RunStream(powerRun), events.IntakeStream} {
		work.Go(func() { d.consume(ctx, stream) })
	}
	work.Wait()
}

func (d *load) append(ctx context.Context, run, entity string, n int, prev uint64, size int) (uint64, bool) {
	e, err := events.New(run, events.RolloutAnnotatedType, entity, fmt.Sprint(n),
		events.RolloutAnnotated{Text: strings.Repeat("words ", size/6)})
	if err != nil {
		d.t.Error(err)
		return 0, false
	}
	e.Prev = prev
	for ctx.Err() == nil {
		stored, _, err := d.log.Appender.Append(ctx, e)
		if err == nil {
			d.ledger.add(events.RunStream(run), stored.ID, stored.Seq)
			return stored.Seq, true
		}
		if conflict := (*eventlog.Conflict)(nil); errors.As(err, &conflict) || errors.Is(err, eventlog.ErrNoLink) {
			d.t.Errorf("the link before it is lost: %v", err)
			return 0, false
		}
	}
	return 0, false
}

// chain appends one event behind the other.
func (d *load) chain(ctx context.Context, i int) {
	rollout, prev, ok := fmt.Sprintf("g%06d-%d", d.life+1, i), uint64(0), true
	for n := 0; ok; n++ {
		size := 100
		if n%8 == 7 {
			size = 60_000 // files fill up
		}
		prev, ok = d.append(ctx, powerRun, rollout, n, prev, size)
	}
}

// runs makes streams, and writes to the catalogue.
func (d *load) runs(ctx context.Context) {
	for n := 0; n < 4 && ctx.Err() == nil; n++ {
		run := fmt.Sprintf("life-%d-%d", d.life, n)
		if err := d.log.Streams.EnsureRun(ctx, run); err != nil {
			continue
		}
		d.append(ctx, run, "g000001-1", 0, 0, 100)
		d.append(ctx, events.Catalogue, fmt.Sprintf("g%06d-%d", d.life+1, n), 0, 0, 100)
	}
}

// submissions are messages of a work queue, with a message id.
func (d *load) submissions(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%d-%d", d.life, n)
		m := &nats.Msg{Subject: "rondo.in.r.x", Header: nats.Header{}, Data: []byte(id)}
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		ack, err := d.log.JetStream().PublishMsg(once, m, jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			d.ledger.add(events.IntakeStream, id, ack.Sequence)
		}
	}
}

// idOf is the id under which a message was answered.
func idOf(m jetstream.Msg) string {
	if strings.HasPrefix(m.Subject(), "rondo.in.") {
		return string(m.Data())
	}
	return m.Headers().Get("ce-id")
}

// consume handles messages, and acknowledges them then.
func (d *load) consume(ctx context.Context, stream string) {
	for ctx.Err() == nil {
		c, err := d.log.JetStream().CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
			Durable: powerConsumer, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: 5 * time.Second, MaxAckPending: 256})
		if err != nil {
			continue
		}
		for ctx.Err() == nil {
			batch, err := c.Fetch(50, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				break
			}
			for m := range batch.Messages() {
				d.ledger.handle(idOf(m))
				if err := m.DoubleAck(ctx); err != nil {
					break
				}
			}
		}
	}
}

// TestPowerOfReplicasIsCut: three servers, two or one of them lose their power in the same moment
// while messages are written, consumed and acknowledged, and streams are made. Each message that
// was acknowledged is there, at its sequence and once, on each replica. Nothing that was not
// handled counts as consumed.
func TestPowerOfReplicasIsCut(t *testing.T) {
	t.Parallel() // servers that elect a leader need no processor
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	m := onDisks(t)
	log, l := m.Log(), &ledger{handled: map[string]bool{}}
	natstest.Eventually(t, "the run has its stream", func() bool {
		return log.Streams.EnsureRun(t.Context(),
			powerRun) == nil
	})
	n := nightly.Count(1, 20)
	for life := range n {
		m.live(log, l, life, chance)
		var err error
		if log, err = eventlog.New(m.Connect(), log.Store()); err != nil { // which remembers nothing
			t.Fatal(err)
		}
		m.Whole(log)
		if m.check(log, l, life == n-1); t.Failed() {
			return
		}
	}
	t.Logf("%d messages were acknowledged, and are there", len(l.answers))
}

// TestRunOutlivesPowerCuts: all servers of a cluster that syncs each write lose their power in the
// same moment, again and again, and a run goes on behind each cut to its end. The services are on
// other machines, and know what they have read.
func TestRunOutlivesPowerCuts(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := onDisks(t)
	disturbedOn(t, m.Members, func(c *natstest.Members, log *eventlog.Log, _ string, _ int) {
		m.cut(nil, 0, 1, 2)
		c.Whole(log)
	})
}

// live puts load on the cluster, and takes the power of all machines, of two or of one.
func (m *machines) live(log *eventlog.Log, l *ledger, life int, chance *rand.Rand) {
	m.t.Helper()
	ctx, stop := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&load{m, log, life, l}).run(ctx)
	}()
	defer func() {
		stop()
		<-done
	}()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.answers)
	}
	grows := func(by int) {
		m.t.Helper()
		before := count()
		natstest.Eventually(m.t, "messages are acknowledged", func() bool { return count() > before+by })
	}
	grows(100 + chance.IntN(nightly.Count(300, 2000)))
	keeps := chance
	if life%2 == 0 {
		keeps = nil // these disks keep nothing that was not synced
	}
	which := chance.Perm(servers)[:servers-life%servers]
	m.t.Logf("life %d: the power of %v is cut", life, which)
	m.cut(keeps, which...)
	grows(100) // the cluster goes on
}

// check holds each replica to what was answered: of the streams that were written to since
// the last check, or of all.
func (m *machines) check(log *eventlog.Log, l *ledger, all bool) {
	m.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	streams, wants := map[string]bool{}, map[string][]answer{}
	for i, a := range l.answers {
		wants[a.stream] = append(wants[a.stream], a)
		if all || i >= l.checked {
			streams[a.stream] = true
		}
	}
	l.checked = len(l.answers)
	for _, stream := range slices.Sorted(maps.Keys(streams)) {
		m.checkStream(log, l, stream, wants[stream])
	}
}

func (m *machines) checkStream(log *eventlog.Log, l *ledger, stream string, wants []answer) {
	t := m.t
	t.Helper()
	s, err := log.JetStream().Stream(t.Context(), stream)
	if err != nil {
		t.Errorf("%s, which has %d acknowledged messages: %v", stream, len(wants), err)
		return
	}
	if state := s.CachedInfo().State; stream != events.IntakeStream &&
		(state.FirstSeq != 1 || state.Msgs != state.LastSeq) {
		t.Errorf("%s has %d messages from %d to %d", stream, state.Msgs, state.FirstSeq, state.LastSeq)
	}
	m.direct(s, wants)
	var first map[uint64]string
	for leader := range servers {
		found, whole := m.content(log, stream, leader)
		maps.DeleteFunc(whole, func(seq uint64, _ string) bool { // its acknowledgement may be under way
			return stream == events.IntakeStream && l.handled[found[seq]]
		})
		if leader == 0 {
			first = whole
		}
		m.same(stream, leader, first, whole)
		var lost []answer
		for _, a := range wants {
			consumed := stream == events.IntakeStream && found[a.seq] == "" && l.handled[a.id]
			if found[a.seq] != a.id && !consumed {
				lost = append(lost, a)
			}
		}
		if len(lost) > 0 {
			t.Errorf("%s on server %d: %d of %d acknowledged messages are not at their sequences, the first is %+v, where it has %q",
				stream, leader, len(lost), len(wants), lost[0], found[lost[0].seq])
		}
		if c, err := log.JetStream().Consumer(t.Context(), stream, powerConsumer); err == nil {
			floor := c.CachedInfo().AckFloor.Stream
			for seq, id := range found {
				if seq <= floor && !l.handled[id] {
					t.Errorf("%s: all until sequence %d counts as consumed, and %s at %d was not handled", stream,
						floor, id, seq)
				}
			}
		}
		ids := slices.Sorted(maps.Values(found))
		if twice := len(ids) - len(slices.Compact(ids)); twice > 0 {
			t.Errorf("%s on server %d: %d messages are there twice", stream, leader, twice)
		}
	}
}

// direct waits until any server answers reads with the messages.
func (m *machines) direct(s jetstream.Stream, wants []answer) {
	m.t.Helper()
	if s.CachedInfo().Config.Name == events.IntakeStream {
		return // they may be consumed
	}
	began, misses := time.Now(), 0
	natstest.Eventually(m.t, "any server answers with the messages of "+s.CachedInfo().Config.Name, func() bool {
		var reads errgroup.Group
		reads.SetLimit(32)
		for _, a := range wants[max(0, len(wants)-1000):] {
			reads.Go(func() error {
				_, err := s.GetMsg(m.t.Context(), a.seq)
				return err
			})
		}
		if reads.Wait() == nil {
			return true
		}
		misses++
		return false
	})
	if misses > 0 {
		m.t.Logf("%s: reads miss messages %d times, for %s", s.CachedInfo().Config.Name, misses, time.Since(began))
	}
}

// same holds a server's messages to those of the first one.
func (m *machines) same(stream string, server int, first, whole map[uint64]string) {
	m.t.Helper()
	var differ []uint64
	for seq := range first {
		if whole[seq] != first[seq] {
			differ = append(differ, seq)
		}
	}
	for seq := range whole {
		if first[seq] == "" {
			differ = append(differ, seq)
		}
	}
	if len(differ) > 0 {
		seq := slices.Min(differ)
		m.t.Errorf("%s: servers 0 and %d differ at %d sequences, the first is %d: %q and %q", stream, server,
			len(differ), seq, first[seq], whole[seq])
	}
}

// content is what a server has of a stream while it leads it, by sequence: the messages' ids,
// and all of them in short.
func (m *machines) content(log *eventlog.Log, stream string, leader int) (found, whole map[uint64]string) {
	t := m.t
	t.Helper()
	natstest.Eventually(t, fmt.Sprintf("server %d leads %s, and is read", leader, stream), func() bool {
		if m.Leader(log, stream) != leader {
			_, _ = log.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream,
				fmt.Appendf(nil, `{"placement":{"preferred":"n%d"}}`, leader), time.Second)
			return false
		}
		s, err := log.JetStream().Stream(t.Context(), stream)
		if err != nil {
			return false
		}
		state := s.CachedInfo().State
		messages := make([]*nats.Msg, max(state.LastSeq, state.FirstSeq)-state.FirstSeq+1)
		var reads errgroup.Group
		reads.SetLimit(32)
		for i := range messages {
			reads.Go(func() (err error) { // of the leader: another way of reading asks any server
				messages[i], err = log.Conn().Request("$JS.API.STREAM.MSG.GET."+stream,
					fmt.Appendf(nil, `{"seq":%d}`, state.FirstSeq+uint64(i)), 5*time.Second)
				return err
			})
		}
		if reads.Wait() != nil {
			return false
		}
		found, whole = map[uint64]string{}, map[uint64]string{}
		for i, answer := range messages {
			var r server.JSApiMsgGetResponse
			if err := json.Unmarshal(answer.Data, &r); err != nil {
				t.Fatal(err)
			}
			if r.Error != nil && r.Error.Code == http.StatusNotFound {
				continue
			}
			if r.Error != nil {
				return false
			}
			seq := state.FirstSeq + uint64(i)
			found[seq] = string(r.Message.Data)
			if stream != events.IntakeStream {
				header, err := nats.DecodeHeadersMsg(r.Message.Header)
				if err != nil {
					t.Fatal(err)
				}
				found[seq] = header.Get("ce-id")
			}
			whole[seq] = fmt.Sprintf("%s %s %s %x", r.Message.Subject, r.Message.Time, r.Message.Header,
				sha256.Sum256(r.Message.Data))
		}
		return m.Leader(log, stream) == leader
	})
	return found, whole
}
