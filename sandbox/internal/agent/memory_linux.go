package agent

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const memoryPollInterval = 100 * time.Millisecond

// memoryPoller enforces the memory limit where no cgroup can: while anything runs it adds up what
// is counted, and kills the largest process of a sandbox that is above its limit. Shared pages
// count once for each process, so it errs to the strict side.
type memoryPoller struct {
	// mu is held over a kill and its count: who saw the end of a killed process sees it counted.
	mu    sync.Mutex
	kills int64
	// own: the sandbox has its own namespaces, so shared memory and sockets
	// that can be listed are its.
	own bool
}

func startMemoryPoller(limit int64, own bool) *memoryPoller {
	m := &memoryPoller{own: own}
	go func() {
		for range time.Tick(memoryPollInterval) {
			if !alone() || own && len(segments()) > 0 { // shared memory stays when its processes end
				m.enforce(limit)
			}
		}
	}()
	return m
}

func (m *memoryPoller) enforce(limit int64) {
	var total, most int64
	var largest process
	for _, p := range processes() {
		size := p.memory()
		total += size
		if size > most {
			largest, most = p, size
		}
	}
	var heaviest segment
	if m.own {
		total += socketMemory()
		for _, s := range segments() {
			total += s.size
			if s.attached == 0 && s.size > heaviest.size {
				heaviest = s
			}
		}
	}
	if total <= limit {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if heaviest.size > most {
		heaviest.remove()
		m.kills++
		return
	}
	if largest.pid != 0 && unix.Kill(largest.pid, unix.SIGKILL) == nil {
		m.kills++
	}
}

// count is how many processes were killed so far; a nil poller, where a cgroup
// limits, has killed none.
func (m *memoryPoller) count() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kills
}

// scapegoat starts processes that the kernel kills before this one when memory runs out,
// however small the limit is. They inherit that from the start: a process that was marked later
// may have had children already.
type scapegoat struct {
	score *os.File // of this process; it must be open before the process seals itself off. Nil where it may not be set
	own   []byte
}

func newScapegoat() scapegoat {
	const name = "/proc/self/oom_score_adj"
	own, err := os.ReadFile(name)
	if err != nil {
		return scapegoat{}
	}
	score, _ := os.OpenFile(name, os.O_WRONLY, 0)
	return scapegoat{score, own}
}

// run runs start, one at a time. The score may be raised by everyone, and lowered to what it was.
func (s scapegoat) run(start func()) {
	_, _ = s.score.WriteAt([]byte("1000"), 0)
	defer func() { _, _ = s.score.WriteAt(s.own, 0) }()
	start()
}
