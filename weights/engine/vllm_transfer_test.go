package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// updates are the requests of the last load that tell of an update.
func (f *fake) updates() (paths []string) {
	begun := slices.Index(f.asked, "/pause?mode=keep&clear_cache=false")
	for _, uri := range f.asked[begun:] {
		if path, _, _ := strings.Cut(uri, "?"); strings.Contains(path, "update") || strings.Contains(path, "reset") {
			paths = append(paths, path)
		}
	}
	return paths
}

// bring brings a fresh server to version 11, and forgets how.
func bring11(t *testing.T, f *fake) *side {
	t.Helper()
	s := sideOf(t, f)
	if err := s.Bring(t.Context(), version(t, 11)); err != nil {
		t.Fatal(err)
	}
	f.asked = nil
	return s
}

// TestTransfer: all is verified before the label is taken away, and the label of the
// version ends the update.
func TestTransfer(t *testing.T) {
	f, v := fresh(transfer), version(t, 12)
	s := bring11(t, f)
	if err := s.Bring(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	check(t, f, v)
	want := []string{"/start_weight_update", "/update_weights", "/update_weight_version", "/update_weights",
		"/reset_prefix_cache", "/finish_weight_update"}
	if got := f.updates(); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// TestTransferRefused: a server that refuses the changes gets the whole version, and one that
// refuses that, too, keeps label and weights, and is not told of as lost.
func TestTransferRefused(t *testing.T) {
	f, v := fresh(transfer), version(t, 12)
	s := bring11(t, f)
	f.damaged = map[string]bool{"changes": true, "files": true}
	if err := s.Bring(t.Context(), v); !errors.Is(err, errKept) {
		t.Errorf("%v", err)
	}
	if f.label != "11" || f.weights != "11" || f.paused {
		t.Errorf("label %s, weights %s, paused %v", f.label, f.weights, f.paused)
	}
	f.damaged["files"] = false
	if err := s.Bring(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	check(t, f, v)
	if want := []string{"serves 11", "serves 12"}; !slices.Equal(s.told, want) {
		t.Errorf("told %q", s.told)
	}
}

// TestTransferRefusedByNoVersion: of a server that had no version before nobody may
// believe that it keeps one.
func TestTransferRefusedByNoVersion(t *testing.T) {
	f := fresh(transfer)
	f.damaged = map[string]bool{"files": true}
	s := sideOf(t, f)
	if err := s.Bring(t.Context(), version(t, 12)); err == nil || errors.Is(err, errKept) {
		t.Errorf("%v", err)
	}
	if want := []string{"lost 12"}; !slices.Equal(s.told, want) {
		t.Errorf("told %q", s.told)
	}
}

// TestTransferFailedHalfWay: where a request fails the server never has the label of a version that
// it has not, and the next try mends it.
func TestTransferFailedHalfWay(t *testing.T) {
	for _, at := range []string{"/start_weight_update", "/update_weights", "apply", "/update_weight_version",
		"/reset_prefix_cache", "/finish_weight_update", "/resume"} {
		t.Run(at, func(t *testing.T) {
			f, v := fresh(transfer), version(t, 12)
			s := bring11(t, f)
			// with those that it gets round
			f.fails[at] = 1 + map[string]int{"/start_weight_update": 3, "/update_weights": 1}[at]
			if err := s.Bring(t.Context(), v); err == nil {
				t.Error("it went well")
			}
			if f.label != f.weights && f.label != "12-loading" {
				t.Errorf("it has %s, and says %s", f.weights, f.label)
			}
			if f.paused && at != "/resume" {
				t.Error("it is left paused")
			}
			if err := s.Bring(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			check(t, f, v)
		})
	}
}

// TestTransferLies: a server that answers that it has applied a version, and has not, is found out.
func TestTransferLies(t *testing.T) {
	f, v := fresh(transfer), version(t, 12)
	s := bring11(t, f)
	f.lies["apply"] = 1
	if err := s.Bring(t.Context(), v); !errors.Is(err, errOther) || f.label == "12" {
		t.Errorf("it is believed (label %s): %v", f.label, err)
	}
	f.violations = nil
	if err := s.Bring(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	check(t, f, v)
	if want := []string{"serves 11", "lost 11", "serves 12"}; !slices.Equal(s.told, want) {
		t.Errorf("told %q", s.told)
	}
}

// TestTransferHangs: a server that does not answer is given up in time.
func TestTransferHangs(t *testing.T) {
	for _, at := range []string{"/start_weight_update", "/update_weights", "apply", "/finish_weight_update"} {
		t.Run(at, func(t *testing.T) {
			old, v := version(t, 11), version(t, 12)
			synctest.Test(t, func(t *testing.T) {
				f := fresh(transfer)
				s := sideOf(t, f)
				if err := s.Bring(t.Context(), old); err != nil {
					t.Fatal(err)
				}
				f.hangs[at] = 1
				began := time.Now()
				if err := s.Bring(t.Context(), v); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took > loadTime || f.paused {
					t.Errorf("after %s, paused: %v", took, f.paused)
				}
				if err := s.Bring(t.Context(), v); err != nil {
					t.Fatal(err)
				}
				check(t, f, v)
			})
		})
	}
}
