// Package power cuts the power of planes: of their processes, and of the disk under them, which
// forgets what was not synced.
package power

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
)

// slack is what a busy machine may add to the interval between two syncs.
const slack = 3 * time.Second

func TestMain(m *testing.M) { os.Exit(program.Run(m)) }

// TestPowerCuts: facts are answered, and the power is cut, again and again. What was answered is
// there when the plane starts again, but for what the durability names; every run that was answered
// as open opens, its audit is clean, and what was begun comes to an end.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	for name, interval := range map[string]time.Duration{"always": 0, "100ms": 100 * time.Millisecond,
		"1h": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			m := &machine{t: t, interval: interval, disk: forgetful.NewDisk(), mount: t.TempDir(),
				known: filepath.Join(t.TempDir(), "known")}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			chance := rand.New(rand.NewPCG(seed, 0))
			for life := range nightly.Count(2, 50) {
				m.live(life, time.Duration(chance.Int64N(int64(slack+time.Second))))
				keeps := chance
				if life%2 == 0 {
					keeps = nil // this disk keeps nothing that was not synced
				}
				m.disk = m.disk.Cut(keeps)
			}
			m.settle()
			t.Logf("%d facts were answered, and are there; %d that the durability names are lost", len(m.answers),
				m.lost)
		})
	}
}

// machine is a computer that loses its power.
type machine struct {
	t        *testing.T
	interval time.Duration
	disk     *forgetful.Disk
	mount    string
	known    string
	answers  []answer
	cut      time.Time
	lost     int
}

// process is a plane's process, with what it says.
type process struct {
	cmd    *exec.Cmd
	says   chan said
	stdin  io.Closer // it ends when this is closed, also because this test is gone
	stderr text
}

// text is what a process prints.
type text struct {
	mu  sync.Mutex
	all []byte
}

func (w *text) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, line...)
	return len(line), nil
}

// String is the end of it.
func (w *text) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.all[max(0, len(w.all)-4000):])
}

// start mounts the disk and starts the plane on it.
func (m *machine) start(o orders) (p *process, stop func()) {
	t := m.t
	t.Helper()
	unmount, err := forgetful.Mount(m.disk, m.mount)
	if err != nil {
		program.Missing(t, "%v", err)
	}
	o.Dir, o.Interval, o.Known = filepath.Join(m.mount, "plane"), m.interval, m.known
	var known bytes.Buffer
	for _, a := range m.answers {
		if err := json.NewEncoder(&known).Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(m.known, known.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	words, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p = &process{cmd: exec.Command(os.Args[0], "-test.run=^TestPlane$", "-test.timeout=10m"), says: make(chan said)}
	p.cmd.Env = append(os.Environ(), ordersVariable+"="+string(words))
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		_ = unmount()
		t.Fatal(err)
	}
	go func() {
		defer close(p.says)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var s said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				p.says <- s
			}
		}
	}()
	return p, func() {
		_ = p.cmd.Process.Kill()
		for s := range p.says { // answers that it got before it died
			m.hear(s)
		}
		_ = p.cmd.Wait()
		if err := unmount(); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
}

func (m *machine) hear(s said) {
	if s.Answered != nil {
		m.answers = append(m.answers, *s.Answered)
	}
}

// checked waits until the plane has looked for what was answered, and judges what it found.
func (m *machine) checked(p *process) bool {
	select {
	case s, ok := <-p.says:
		if !ok || s.Checked == nil {
			m.t.Errorf("the plane does not start again: %s", &p.stderr)
			return false
		}
		m.judge(*s.Checked)
		return !m.t.Failed()
	case <-time.After(patience):
		m.t.Errorf("the plane does not start within %s", patience)
		return false
	}
}

// judge holds what is lost against the durability. What the durability names
// is not looked for again.
func (m *machine) judge(f findings) {
	for _, broken := range f.Broken {
		m.t.Error(broken)
	}
	gone := map[int]bool{}
	for _, i := range f.Lost {
		a := m.answers[i]
		age := m.cut.Sub(a.At)
		switch {
		case m.interval == 0:
			m.t.Errorf("%s at sequence %d was answered, and is lost", a.ID, a.Seq)
		case a.Opens:
			m.t.Errorf("%s opened its run, and is lost", a.ID)
		case age > m.interval+slack:
			m.t.Errorf("%s at sequence %d was answered %s before the cut, and is lost", a.ID, a.Seq, age)
		}
		gone[i] = true
		m.lost++
	}
	var left []answer
	for i, a := range m.answers {
		if !gone[i] {
			left = append(left, a)
		}
	}
	m.answers = left
}

// live starts the plane, and cuts the power some time after it has looked around.
func (m *machine) live(life int, length time.Duration) {
	p, stop := m.start(orders{Life: life})
	defer stop()
	defer func() { m.cut = time.Now() }()
	if !m.checked(p) {
		m.t.FailNow()
	}
	cut := time.After(length)
	for {
		select {
		case s, ok := <-p.says:
			if !ok {
				m.t.Fatalf("the plane ended by itself: %s", &p.stderr)
			}
			m.hear(s)
		case <-cut:
			return
		}
	}
}

// settle lets the plane end what it began.
func (m *machine) settle() {
	p, stop := m.start(orders{Life: -1, Settle: true})
	defer stop()
	if !m.checked(p) {
		return
	}
	if s, ok := <-p.says; !ok || !s.Settled {
		m.t.Errorf("the plane does not settle: %s", &p.stderr)
	}
}
