package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// board is one in memory.
type board struct {
	mu      sync.Mutex
	text    map[string][]byte
	version map[string]uint64
}

func newBoard() *board { return &board{text: map[string][]byte{}, version: map[string]uint64{}} }

func (b *board) Read(_ context.Context, name string) ([]byte, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text[name], b.version[name], nil
}

func (b *board) Write(_ context.Context, name string, text []byte, version uint64) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version[name] != version {
		return false, nil
	}
	b.text[name], b.version[name] = text, version+1
	return true, nil
}

// team is processes that ask the same servers.
type team struct {
	t      *testing.T
	farm   *farm
	board  *board
	fleets []*Fleet
	ends   []func()
	cut    [4]atomic.Bool // a process's line to the board
}

// line is a process's to the board.
type line struct {
	*board
	cut *atomic.Bool
}

func (l *line) Read(ctx context.Context, name string) ([]byte, uint64, error) {
	if l.cut.Load() {
		return nil, 0, errors.New("the line is cut")
	}
	return l.board.Read(ctx, name)
}

func (l *line) Write(ctx context.Context, name string, text []byte, version uint64) (bool, error) {
	if l.cut.Load() {
		return false, errors.New("the line is cut")
	}
	return l.board.Write(ctx, name, text, version)
}

// newTeam makes a team of n processes. Those that do not share ask as if they were alone.
func newTeam(t *testing.T, n int, sharing bool, serve map[string]func(int, time.Duration) reply) *team {
	k := &team{t: t, board: newBoard()}
	for range n {
		f, servers := newFarm(t, serve, nil)
		if k.farm == nil {
			k.farm = servers
		}
		f.http.Transport = k.farm
		k.fleets, k.ends = append(k.fleets, f), append(k.ends, func() {})
		if sharing {
			k.share(len(k.fleets) - 1)
		}
	}
	synctest.Wait()
	return k
}

func (k *team) share(i int) {
	ctx, stop := context.WithCancel(k.t.Context())
	over := make(chan struct{})
	f := k.fleets[i]
	f.ShareBy(&line{board: k.board, cut: &k.cut[i]}, fmt.Sprint("process-", i))
	go func() { defer close(over); f.Share(ctx, "machine") }()
	k.ends[i] = sync.OnceFunc(func() { stop(); <-over })
	k.t.Cleanup(k.ends[i])
}

// ask lets every process have many turns sampled, and gives how long all of them take.
func (k *team) ask(each int, of ...int) time.Duration {
	began := time.Now()
	var asking sync.WaitGroup
	for _, i := range of {
		for n := range each {
			asking.Go(func() {
				if _, err := k.fleets[i].Complete(k.t.Context(), call(fmt.Sprint(i, "-", n), 16, "a")); err != nil {
					k.t.Error(err)
				}
			})
		}
	}
	asking.Wait()
	return time.Since(began)
}

// windows are the most requests that were under way within each second.
func (k *team) windows(seconds int) func() []int {
	most := make([]int, seconds)
	k.farm.watch = func(_ string, inFlight int, _ *reply) {
		if at := int(time.Since(k.farm.began) / time.Second); at < seconds {
			most[at] = max(most[at], inFlight)
		}
	}
	return func() []int { return most }
}

// TestManyAskAsOne: four processes that meet a cold server have together no more requests under way than one has, at any time, and after some of its ramp's steps they
// have all of their slots.
func TestManyAskAsOne(t *testing.T) {
	const seconds = 12
	serve := map[string]func(int, time.Duration) reply{"a": always(reply{takes: time.Second})}
	cold := func(t *testing.T, processes int, sharing bool) (most []int) {
		synctest.Test(t, func(t *testing.T) {
			k := newTeam(t, processes, sharing, serve)
			all := make([]int, processes)
			for i := range all {
				all[i] = i
			}
			k.farm.began = time.Now()
			seen := k.windows(seconds)
			k.ask(240/processes, all...)
			most = seen()
			for _, end := range k.ends {
				end()
			}
		})
		return most
	}
	one, four, apart := cold(t, 1, true), cold(t, 4, true), cold(t, 4, false)
	t.Logf("one %v\nfour %v\nfour that do not share %v", one, four, apart)
	reached := 0
	for i := range seconds {
		ramp := min(1<<i, 64) // one with slots enough doubles with each second
		if four[i] > ramp {
			t.Errorf("in second %d of a cold server four processes have %d requests under way, one would have %d", i, four[i], ramp)
		}
		reached = max(reached, four[i])
	}
	if one[0] != 1 || one[1] != 2 || one[2] != 4 || apart[0] != 4 {
		t.Errorf("a lone process does not begin as before: %v; or four that do not share are no danger: %v", one, apart)
	}
	if reached < 48 {
		t.Errorf("four processes with 16 slots each come to %d requests at once", reached)
	}
}

// TestRestartedServerMeetsOneRamp: when the server of a team restarts, its requests break in every process, and it is met as one that was never asked.
func TestRestartedServerMeetsOneRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		k := newTeam(t, 4, true, map[string]func(int, time.Duration) reply{"a": func(int, time.Duration) reply {
			if down.Load() {
				return reply{err: &inference.Failure{}, takes: time.Millisecond}
			}
			return reply{takes: time.Second}
		}})
		k.ask(60, 0, 1, 2, 3)
		var asking sync.WaitGroup
		for i, f := range k.fleets {
			for n := range 40 {
				asking.Go(func() {
					c := call(fmt.Sprint(i, "+", n), 16, "a")
					for k.t.Context().Err() == nil {
						if _, err := f.Complete(t.Context(), c); err == nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
			}
		}
		time.Sleep(500 * time.Millisecond)
		down.Store(true)
		time.Sleep(20 * time.Second)
		most := make([]int, 5)
		var first time.Time
		k.farm.mu.Lock()
		down.Store(false)
		k.farm.watch = func(_ string, inFlight int, ended *reply) {
			if ended == nil && first.IsZero() {
				first = time.Now()
			}
			if at := int(time.Since(first) / time.Second); ended == nil && at < len(most) {
				most[at] = max(most[at], inFlight)
			}
		}
		k.farm.mu.Unlock()
		asking.Wait()
		t.Logf("%v", most)
		for i, n := range most {
			if n > 1<<i || most[0] == 0 {
				t.Errorf("in second %d behind the first request, a server that came back has %d requests under way", i, n)
			}
		}
		for _, end := range k.ends {
			end()
		}
	})
}

// TestPartsOfWhoComesAndGoes: who comes gets a part, and what a process had that has left, or died, is its own again.
func TestPartsOfWhoComesAndGoes(t *testing.T) {
	for name, leave := range map[string]func(k *team){
		"leaves": func(k *team) { k.ends[1]() },
		"dies":   func(k *team) { k.cut[1].Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limited := func(n int, at time.Duration) reply { return reply{takes: time.Second} }
				k := newTeam(t, 2, true, map[string]func(int, time.Duration) reply{"a": limited})
				if took := k.ask(64, 0); took > 12*time.Second {
					t.Errorf("alone, 64 turns take %v", took)
				}
				k.ask(16, 0, 1)
				allowed := func(i int) int { states, _ := k.fleets[i].Look(); return states[0].Allowed }
				if a, b := allowed(0), allowed(1); a > 16 || b > 16 || a+b < 8 {
					t.Errorf("together they are allowed %d and %d", a, b)
				}
				leave(k)
				time.Sleep(2 * goneAfter)
				if got := allowed(0); got != 16 {
					t.Errorf("alone again it is allowed %d", got)
				}
				if took := k.ask(64, 0); took > 7*time.Second {
					t.Errorf("alone again, 64 turns take %v", took)
				}
				for _, end := range k.ends {
					end()
				}
			})
		})
	}
}

// TestBrokenBoardKeepsNobody: without a board each process asks by itself, as before.
func TestBrokenBoardKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, 2, true, map[string]func(int, time.Duration) reply{"a": always(reply{takes: time.Second})})
		k.cut[0].Store(true)
		k.cut[1].Store(true)
		if took := k.ask(32, 0, 1); took > 10*time.Second {
			t.Errorf("64 turns take %v", took)
		}
		k.cut[0].Store(false)
		k.cut[1].Store(false)
		k.ask(16, 0, 1)
		for _, end := range k.ends {
			end()
		}
	})
}

// TestPartsAddUp: whatever members want and hold, the parts are together at most what the ramp allows, and grants on top of what others hold never more.
func TestPartsAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a := agreement{Allowed: 1 + 100*rng.Float64(), Members: map[string]member{}}
		for i := range 1 + rng.IntN(6) {
			a.Members[fmt.Sprint(i)] = member{Want: rng.IntN(40), Slots: rng.IntN(65) - 1, Grant: rng.IntN(30), Answered: int64(rng.IntN(9))}
		}
		parts, wanted := 0, 0
		for n, m := range a.Members {
			part := a.partOf(n)
			parts += part
			if m.Want > 0 {
				wanted += m.most()
			}
			held := 0
			for other, o := range a.Members {
				if other != n {
					held += o.Grant
				}
			}
			if g := a.grantOf(n); g < 0 || g > part || g > 0 && g+held > int(a.Allowed) {
				t.Fatalf("%+v: %s is granted %d of a part of %d", a, n, g, part)
			}
		}
		if a.Allowed < a.slots() && (parts > int(a.Allowed) || parts < min(int(a.Allowed), wanted)) {
			t.Fatalf("%+v: the parts are %d, of %d that are wanted", a, parts, wanted)
		}
	}
}
