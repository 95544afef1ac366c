package verifier

import (
	"context"
	"os"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

func TestSmoke(t *testing.T) {
	snap, _ := sandbox.Pack(fstest.MapFS{"a.txt": {Data: []byte("hello")}})
	tests, _ := sandbox.Pack(fstest.MapFS{"test.sh": {Data: []byte("cat a.txt; ls -la /tests /app; echo '{\"reward\": 0.5, \"x\": 2}' > /logs/verifier/reward.json")}})
	out, err := Run(context.Background(), Spec{Name: "v", Snapshot: snap, Tests: tests})
	t.Logf("%+v %v\n%s", out, err, out.Log)
}
