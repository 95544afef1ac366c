package agent

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// TestReceiveCall: three pipes cross to the other sandbox, and nothing else does.
func TestReceiveCall(t *testing.T) {
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(t.TempDir() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{reading, writing, file, folder})
	for want, files := range map[string][]*os.File{
		"":                       {reading, writing, writing},
		"1 is not a pipe":        {reading, file, writing},
		"0 is not a pipe":        {folder, writing, writing},
		"2 descriptors":          {reading, writing},
		"4 descriptors":          {reading, writing, writing, file},
		"0 descriptors in place": nil,
	} {
		t.Run(want, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			caller, server := os.NewFile(uintptr(pair[0]), "caller"), os.NewFile(uintptr(pair[1]), "server")
			sizes, body, err := wire.Call{Dir: "/", Argv: []string{"true"}}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if err := wire.SendFiles(caller, files); err != nil {
				t.Fatal(err)
			}
			if err := wire.Write(caller, sizes, body); err != nil {
				t.Fatal(err)
			}
			call, err := receiveCall(server)
			if want == "" && (err != nil || len(call.Argv) != 1) ||
				want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%+v, %v, want %q", call, err, want)
			}
			if err == nil {
				wire.CloseFiles(call.files)
			}
			_ = closeAll([]*os.File{caller, server})
		})
	}
}

// TestCallEnvironment: what the tests have set goes over, and what means their own sandbox
// or began there does not.
func TestCallEnvironment(t *testing.T) {
	a := &agent{boot: wire.Boot{LinkEnv: map[string]string{"PATH": "/bin", "HOME": "/root", "TZ": "UTC"},
		Withheld: map[string]string{"TZ": "UTC", "SECRET": "x", "LANG": "C"}}}
	env := a.callEnv([]string{"PATH=/run/under-test", "HOME=/elsewhere", "TZ=Asia/Tokyo", "SECRET=x", "LANG=de",
		"A=1=2", "LD_PRELOAD=x", "BASH_ENV=y", "BASH_FUNC_f%%=() { :; }", "=z", "none"})
	want := map[string]string{"PATH": "/bin", "HOME": "/root", "TZ": "Asia/Tokyo", "LANG": "de", "A": "1=2"}
	if len(env) != len(want) {
		t.Errorf("environment %q, want %q", env, want)
	}
	for name, value := range want {
		if env[name] != value {
			t.Errorf("%s is %q, want %q", name, env[name], value)
		}
	}
}
