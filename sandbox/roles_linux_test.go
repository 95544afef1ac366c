package sandbox_test

import (
	"os"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// TestRoles: a verifier's sandbox is another user to the host than an agent's, is root to itself
// all the same, and shares the snapshots of verifiers alone.
func TestRoles(t *testing.T) {
	t.Parallel()
	needOverlay(t)
	data := sandboxtest.Pack(t, map[string]string{"dir/file": "x"})
	ofVerifiers, err := sandbox.OpenSnapshots(t.TempDir(), sandbox.RoleVerifier, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	snapshots := map[sandbox.Role]*sandbox.Snapshot{sandbox.RoleAgent: use(t, openSnapshots(t, 1<<30), data),
		sandbox.RoleVerifier: use(t, ofVerifiers, data)}
	lent := t.TempDir()
	if err := os.WriteFile(lent+"/cached", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.Lend(lent); err != nil {
		t.Fatal(err)
	}
	users := map[sandbox.Role]uint32{}
	for role, own := range snapshots {
		for from, snapshot := range snapshots {
			sb := sandboxtest.New(t, sandbox.Spec{Role: role, Snapshot: snapshot,
				Mounts: []sandbox.Mount{{Source: lent, Target: "/var/cache/lent", Overlay: true}}})
			want := map[bool]string{true: "overlay", false: "copy"}[snapshot == own]
			if sb.FSMode() != want || sb.User() != sandbox.UserOwn {
				t.Errorf("role %d over a snapshot of role %d: %s of %s, want %s", role, from,
					sb.FSMode(), sb.User(), want)
			}
			got := output(t, sb, "mv dir moved; echo y >> moved/file; echo > new; mkdir folder; "+
				"echo y >> /var/cache/lent/cached && echo > /var/cache/lent/new && echo lent; stat -c '%U %a %n' . moved/file new folder; id -u")
			if got != "lent\nroot 755 .\nroot 644 moved/file\nroot 644 new\nroot 755 folder\n0" {
				t.Errorf("role %d over a snapshot of role %d: %s", role, from, got)
			}
			users[role] = sb.HostUser(t)
		}
	}
	if users[sandbox.RoleAgent] == users[sandbox.RoleVerifier] || users[sandbox.RoleAgent] == 0 ||
		users[sandbox.RoleVerifier] == 0 {
		t.Errorf("to the host they are %v", users)
	}
}
