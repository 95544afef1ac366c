package compose_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
)

// guided are the commands of the guide's section on containers.
func guided(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/guide/cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## In containers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, _ := strings.Cut(section, "\n```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("docs/guide/cluster.md has no commands for containers")
	}
	return strings.Split(strings.TrimSpace(block), "\n")
}

// threeServers does as the guide says: the log is on three servers, and each is killed in turn
// while the demo trains, and comes back when the run has gone on without it. The run is longer than
// that takes, and is judged where it is.
func threeServers(t *testing.T) {
	commands := guided(t)
	setting, found := strings.CutPrefix(commands[0], "echo COMPOSE_FILE=")
	files, to, _ := strings.Cut(setting, " ")
	if len(commands) != 6 || !found || to != ">> .env" {
		t.Fatalf("the guide's commands are %q", commands)
	}
	s := newStack(t, map[string]string{"COMPOSE_FILE": files, "RONDO_DEMO_STEPS": "24", "RONDO_PUBLISH": publish})
	do := func(command string, more ...string) (out string) {
		t.Helper()
		args, found := strings.CutPrefix(command, "docker compose ")
		if !found {
			t.Fatalf("the guide says %q", command)
		}
		return s.compose(append(strings.Fields(args), more...)...)
	}
	do(commands[1], "--detach", "--wait", "--wait-timeout", "1200")
	s.log = fmt.Sprintf("nats://%[1]s:4222,nats://%[1]s:4223,nats://%[1]s:4224", publish)
	nc, _ := s.connect(s.keysOf(topology.Admin))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	last := func() (seq uint64) { // 0 while there is no run, or no leader
		if stream, err := js.Stream(t.Context(), events.RunStream(run)); err == nil {
			seq = stream.CachedInfo().State.LastSeq
		}
		return seq
	}
	closed := func() bool {
		stream, err := js.Stream(t.Context(), events.RunStream(run))
		if err == nil {
			_, err = stream.GetLastMsgForSubject(t.Context(), events.SubjectPrefix+run+".run."+run+".closed")
		}
		return err == nil
	}
	s.eventually(patience, "the run begins", func() bool { return last() > 0 })
	for _, server := range []string{"nats-2", "nats-3", "nats"} {
		do(strings.ReplaceAll(commands[2], "nats-2", server)) // kill
		var before uint64
		s.eventually(patience, "the stream has a leader", func() bool { before = last(); return before > 0 })
		began := time.Now()
		s.eventually(patience, "the run goes on without "+server, func() bool { return last() > before+20 || closed() })
		if s.inspect(s.container(server)).State.Status != "exited" {
			t.Errorf("%s is there", server)
		}
		t.Logf("without %s, 20 events came within %s", server, time.Since(began).Round(100*time.Millisecond))
		if server == "nats-2" {
			// doctor; the servers need a while to miss one
			if out := do(commands[3]); !regexp.MustCompile(`stream RONDO.*nats-2 (is away|behind)`).MatchString(out) {
				t.Errorf("rondo doctor does not miss nats-2:\n%s", out)
			}
		}
		if closed() {
			t.Fatalf("the run ended before every server was killed: %s was the last", server)
		}
		do(strings.ReplaceAll(commands[4], "nats-2", server)) // start
		s.eventually(patience, server+" is healthy", func() bool {
			state := s.inspect(s.container(server)).State
			return state.Health != nil && state.Health.Status == "healthy"
		})
	}
	do(commands[5]) // audit: of what there is of the run so far
	s.promises()
	s.whole(js)
	if _, err := nats.Connect(s.log, nats.Timeout(30*time.Second)); err == nil {
		t.Error("the cluster lets strangers in")
	}
}

// whole: every stream has three replicas, which are all there.
func (s *stack) whole(js jetstream.JetStream) {
	s.t.Helper()
	n := 0
	streams := js.ListStreams(s.t.Context())
	for info := range streams.Info() {
		n++
		if info.Config.Replicas != 3 || info.Config.Compression != jetstream.NoCompression || info.Cluster == nil ||
			len(info.Cluster.Replicas) != 2 {
			s.t.Errorf("stream %s: %d replicas, compression %s, %+v", info.Config.Name, info.Config.Replicas,
				info.Config.Compression, info.Cluster)
			continue
		}
		for _, r := range info.Cluster.Replicas {
			if r.Offline {
				s.t.Errorf("stream %s: %s is away", info.Config.Name, r.Name)
			}
		}
	}
	if err := streams.Err(); err != nil || n < 4 {
		s.t.Errorf("%d streams, %v", n, err)
	}
}
