package agent

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killDeadline bounds how long a fork bomb may race with being killed.
const killDeadline = 5 * time.Second

// orphanPatience bounds how long the ends of orphans, which may be of a command that goes on, keep
// others from being counted as gone.
const orphanPatience = time.Second

// process is one line of the process table. The start time makes it unique,
// as numbers are used again.
type process struct {
	pid, parent, session int
	started              uint64
	dead                 bool
	residentPages        int64
	virtual              int64 // bytes of address space
}

// processes lists all that descend from this process: in a process namespace everything,
// without one what it started.
func processes() []process {
	all := table()
	var found []process
	for _, p := range all {
		if descends(p, all) {
			found = append(found, p)
		}
	}
	return found
}

// table is the process table, by process number.
func table() map[int]process {
	names, err := readNames("/proc")
	if err != nil {
		return nil
	}
	all := map[int]process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	return all
}

func descends(p process, all map[int]process) bool {
	self := os.Getpid()
	for range len(all) {
		if p.parent == self {
			return true
		}
		parent, known := all[p.parent]
		if !known {
			return false
		}
		p = parent
	}
	return false
}

// belongs reports whether a process is of a command that runs: of its session, or
// started by a process that is.
func belongs(p process, all map[int]process, running map[int]bool) bool {
	for range len(all) {
		if running[p.session] {
			return true
		}
		parent, known := all[p.parent]
		if !known {
			return false
		}
		p = parent
	}
	return false
}

// readProcess parses /proc/<pid>/stat, whose second field, the command in
// brackets, may hold anything.
func readProcess(pid int) (process, bool) {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return process{}, false
	}
	// After the command: state, parent, group, session, ...; the 20th is the start time, the 21st
	// the address space, the 22nd the resident pages.
	fields := bytes.Fields(line[end+1:])
	if len(fields) < 22 {
		return process{}, false
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(string(fields[i]), 10, 64); return n }
	state := fields[0][0]
	return process{
		pid: pid, parent: int(number(1)), session: int(number(3)), started: uint64(number(19)),
		residentPages: number(21), virtual: number(20), dead: state == 'Z' || state == 'X',
	}, true
}

func readNames(dir string) ([]string, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return folder.Readdirnames(-1)
}

// reaper waits for every process of the sandbox, also those that lost their parent, and knows
// whose end somebody waits for.
type reaper struct {
	mu      sync.Mutex
	begun   *sync.Cond // something was started since the last time there was nothing to wait for
	started bool
	awaited map[int]*command // by pid, which is the session's number too
	orphan  int64            // when the last process that nobody awaited was reaped, in nanoseconds since 1970
}

func startReaper() *reaper {
	// without a process namespace, orphans come here all the same
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	r := &reaper{awaited: map[int]*command{}}
	r.begun = sync.NewCond(&r.mu)
	go r.run()
	return r
}

func (r *reaper) run() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
		r.mu.Lock()
		if err == unix.ECHILD {
			for !r.started {
				r.begun.Wait()
			}
			r.started = false
		} else {
			r.reap()
		}
		r.mu.Unlock()
	}
}

// reap takes one dead process out of the table and notes whose it was, both under the lock: whoever
// no longer finds a process there must find what is known of it.
func (r *reaper) reap() {
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOHANG, nil)
	if err != nil || pid == 0 {
		return
	}
	if c := r.awaited[pid]; c != nil {
		delete(r.awaited, pid)
		c.ended <- status
		return
	}
	r.orphan = time.Now().UnixNano()
}

// startWithin is how long a command is tried to be started at the limit on processes: what an
// earlier command left counts until it is reaped.
const startWithin = 200 * time.Millisecond

// start runs fork, which starts a command and answers its pid, so that its end cannot be missed.
func (r *reaper) start(c *command, fork func() (int, error)) (int, error) {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		pid, err := r.startNow(c, fork)
		if !errors.Is(err, syscall.EAGAIN) || time.Since(began) > startWithin {
			return pid, err
		}
	}
}

func (r *reaper) startNow(c *command, fork func() (int, error)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, err
	}
	r.awaited[pid] = c
	r.started = true
	r.begun.Signal()
	return pid, nil
}

// sessions are the commands that run now.
func (r *reaper) sessions() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := make(map[int]bool, len(r.awaited))
	for pid := range r.awaited {
		running[pid] = true
	}
	return running
}

// lastOrphan is when a process that had lost its parent was last reaped, if that was after a time.
func (r *reaper) lastOrphan(after time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.orphan < after.UnixNano() {
		return 0
	}
	return r.orphan
}

// alone tells that no process but this one is there.
func alone() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
}

type key struct {
	pid     int
	started uint64
}

// snapshot is who runs now, so that it survives what comes next.
func snapshot() map[key]bool {
	found := map[key]bool{}
	if alone() {
		return found
	}
	for _, p := range processes() {
		found[key{p.pid, p.started}] = true
	}
	return found
}

// killLeftovers ends everything that a command left behind: all that was not there before it and
// belongs to no other command. A process that made itself a session of its own is found as well,
// since nothing else could have started it. It tells how many there were, just dead ones included.
func (r *reaper) killLeftovers(before map[key]bool) int {
	found, clean := map[key]bool{}, 0
	// One that forks and ends while the table is read is missed, with its child. It is then in the
	// next table, dead, or was reaped meanwhile.
	began := time.Now()
	for time.Since(began) < killDeadline && clean < 2 && !alone() {
		look, keep := time.Now(), r.sessions()
		all := table()
		clean++
		for _, p := range all {
			id := key{p.pid, p.started}
			if before[id] || !descends(p, all) || belongs(p, all, keep) {
				continue
			}
			if !p.dead || !found[id] {
				clean = 0
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
			found[id] = true
		}
		if r.lastOrphan(look) != 0 && time.Since(began) < orphanPatience {
			clean = 0
		}
		if len(before) == 0 && r.sweep() {
			clean = 0
		}
	}
	return len(found)
}

// sweep kills every process but this one in one go, so that none can fork out of it, and reports
// whether it did: it must not where a command runs, or where processes of others are in reach.
func (r *reaper) sweep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if os.Getpid() != 1 || len(r.awaited) > 0 {
		return false
	}
	return unix.Kill(-1, unix.SIGKILL) == nil
}

// kill ends a command's process group, unless its number belongs to another command by now.
func (r *reaper) kill(c *command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.awaited[c.pid]; other == nil || other == c {
		_ = unix.Kill(-c.pid, unix.SIGKILL)
	}
}

// killAll ends every process but this one and waits until they are gone.
func (r *reaper) killAll() {
	for deadline := time.Now().Add(killDeadline); time.Now().Before(deadline) && !alone(); {
		if os.Getpid() == 1 {
			_ = unix.Kill(-1, unix.SIGKILL) // one sweep of the kernel: nobody can fork out of it
		} else {
			for _, p := range processes() {
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		time.Sleep(time.Millisecond)
	}
}
