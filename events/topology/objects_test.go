package topology

import (
	"slices"
	"strings"
	"testing"
)

func TestObjectsNameWhoIsThere(t *testing.T) {
	for _, s := range Objects {
		for _, name := range slices.Concat(s.Reads, s.Writes, s.Deletes, s.Lists) {
			if name != Anybody && !belongs(name) {
				t.Errorf("%q: there is no %q", s.Prefix, name)
			}
		}
		for _, role := range slices.Concat(s.RoleReads, s.RoleWrites) {
			if !slices.ContainsFunc(Roles, func(r RoleSpec) bool { return r.Role == role }) {
				t.Errorf("%q: there is no role %q", s.Prefix, role)
			}
		}
		if s.Prefix != "" && !strings.HasSuffix(s.Prefix, "/") {
			t.Errorf("%q also begins the names of its neighbours", s.Prefix)
		}
	}
}

func TestOutsiderObjects(t *testing.T) {
	for _, test := range []struct {
		outsider    Outsider
		read, write string
	}{
		{Outsider{Name: "t", Role: RoleTrainer, Run: "r", Feed: "f", Policy: "p"},
			"blobs/* rondo-probe/* runs/r/batches/f/* weights/p/* weights/p/files/*",
			"blobs/* rondo-probe/* weights/p/files/*"},
		{Outsider{Name: "t", Role: RoleTrainer, Run: "r", Feed: "f"}, "blobs/* rondo-probe/* runs/r/batches/f/*",
			"blobs/* rondo-probe/*"},
		{Outsider{Name: "h", Role: RoleHarness, Run: "r"}, "blobs/* rondo-probe/* runs/r/trajectories/*",
			"blobs/* rondo-probe/* runs/r/trajectories/*"},
		{Outsider{Name: "q", Role: RoleProduct, Run: "r"}, "blobs/* rondo-probe/*", "blobs/* rondo-probe/*"},
		{Outsider{Name: "s", Role: RoleServer, Run: "r", Policy: "p"},
			"blobs/* rondo-probe/* weights/p/* weights/p/files/*", "blobs/* rondo-probe/*"},
	} {
		got, err := OutsiderObjects(test.outsider)
		if err != nil {
			t.Fatal(err)
		}
		if read, write := strings.Join(got.Read, " "),
			strings.Join(got.Write, " "); read != test.read || write != test.write {
			t.Errorf("%+v reads %q and writes %q; want %q and %q", test.outsider, read, write, test.read, test.write)
		}
		if len(got.List) > 0 || !slices.Equal(got.Delete, []string{ProbePrefix + "*"}) {
			t.Errorf("%+v lists %q and deletes %q", test.outsider, got.List, got.Delete)
		}
	}
	for _, hostile := range []Outsider{{Name: "t", Role: RoleHarness, Run: "*"},
		{Name: "t", Role: RoleTrainer, Run: "r", Feed: "a/b"}, {Name: "t", Role: "king", Run: "r"}} {
		if got, err := OutsiderObjects(hostile); err == nil {
			t.Errorf("%+v may do %+v", hostile, got)
		}
	}
}

func TestProcessObjects(t *testing.T) {
	both, err := ProcessObjects(Generator, TrainerFeeder)
	if err != nil || strings.Join(both.Write, " ") != "blobs/* rondo-probe/* runs/*/batches/*/* runs/*/trajectories/*" {
		t.Errorf("generator and feeder write %q, %v", both.Write, err)
	}
	if admin, err := ProcessObjects(Admin); err != nil ||
		strings.Join(slices.Concat(admin.Read, admin.Write, admin.Delete, admin.List), " ") != "* * * *" {
		t.Errorf("admin may do %+v, %v", admin, err)
	}
	if _, err := ProcessObjects("nobody"); err == nil {
		t.Error("a service that is none has rights")
	}
}
