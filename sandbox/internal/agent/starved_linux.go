package agent

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// A command's limit counts the time in which it runs, or waits for something of its own. Time in
// which the machine had no processor for any of its threads is the machine's.

// lookEvery is how often it is looked whether a command had a processor. Threads that come
// and go between are missed.
const lookEvery = time.Second

// usage is how long a thread has run, and how long it has waited for a processor.
type usage struct{ ran, waited time.Duration }

// starved is how long a command had no processor while a thread of it wanted one, of the time that
// has passed between two looks. While any of its threads runs, it has one: what they wait for each
// other is their own doing.
func starved(before, now map[int]usage, passed time.Duration) time.Duration {
	var ran, longest time.Duration
	for thread, u := range now {
		ran += u.ran - before[thread].ran
		longest = max(longest, u.waited-before[thread].waited)
	}
	return max(0, min(longest, passed-ran))
}

// hunger follows a command that has a limit.
type hunger struct {
	read   func() map[int]usage // of the command's threads
	limit  time.Duration
	before map[int]usage
	at     time.Time
	total  atomic.Int64
}

func newHunger(limit time.Duration, read func() map[int]usage) *hunger {
	return &hunger{read: read, limit: limit, at: time.Now()}
}

// starved is how long the command was starved until the last look: at most
// wire.MostStarved times its limit.
func (h *hunger) starved() time.Duration { return time.Duration(h.total.Load()) }

// watch is closed when the command's time is over. It looks until stop is closed.
func (h *hunger) watch(stop <-chan struct{}) <-chan struct{} {
	over, began := make(chan struct{}), h.at
	go func() {
		timer := time.NewTimer(min(h.limit, lookEvery))
		defer timer.Stop()
		for {
			select {
			case <-stop:
				return
			case <-timer.C:
			}
			now, threads := time.Now(), h.read()
			h.total.Store(int64(min(h.starved()+starved(h.before, threads, now.Sub(h.at)), wire.MostStarved*h.limit)))
			h.at, h.before = now, threads
			left := h.limit + h.starved() - now.Sub(began)
			if left <= 0 {
				close(over)
				return
			}
			timer.Reset(min(left, lookEvery))
		}
	}()
	return over
}

// usages are those of the threads of a command. Kernels that keep no such statistics give none.
func usages(pid int) map[int]usage {
	all, running, found := table(), map[int]bool{pid: true}, map[int]usage{}
	for _, p := range all {
		if !belongs(p, all, running) {
			continue
		}
		folder := "/proc/" + strconv.Itoa(p.pid) + "/task"
		threads, _ := readNames(folder)
		for _, name := range threads {
			text, err := os.ReadFile(folder + "/" + name + "/schedstat")
			if err != nil {
				continue
			}
			id, _ := strconv.Atoi(name)
			var u usage
			if _, err := fmt.Sscan(string(text), &u.ran, &u.waited); err == nil {
				found[id] = u
			}
		}
	}
	return found
}
