package sandbox

import (
	"context"
	"testing"
)

func TestSmoke(t *testing.T) {
	s, err := New(context.Background(), Spec{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Exec(context.Background(), Command{Argv: []string{"sh", "-c", "id; pwd; ls -la / /dev /app; cat /proc/mounts; ps ax; grep Cap /proc/self/status; go version; nproc; cat /etc/hosts; ls /home; cat /proc/self/cgroup"}})
	t.Logf("%v %+v\n%s\n%s", err, r.ExitCode, r.Stdout, r.Stderr)
	t.Log(Probe(context.Background()))
}
