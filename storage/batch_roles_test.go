package storage_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// TestRoleColumn: the roles of rollouts go through a file, and one that is none
// of the batch's does not.
func TestRoleColumn(t *testing.T) {
	b := taught(4, 5)
	b.Roles = []string{"x", "o"}
	for i := range b.Samples {
		b.Samples[i].Role = b.Roles[i%2]
	}
	file := encodeBatch(t, b)
	back, err := storage.DecodeBatch(file)
	if err != nil {
		t.Fatal(err)
	}
	if again := encodeBatch(t, back); !bytes.Equal(again, file) || back.Samples[1].Role != "o" || len(back.Roles) != 2 {
		t.Errorf("%+v became %+v", b, back)
	}
	for want, change := range map[string]func(*storage.Batch){
		"role \"z\" is none of": func(b *storage.Batch) { b.Samples[0].Role = "z" },
		"role \"a,b\"":          func(b *storage.Batch) { b.Roles = []string{"a,b"} },
		"appears twice":         func(b *storage.Batch) { b.Roles = []string{"x", "x"} },
		"17 roles":              func(b *storage.Batch) { b.Roles = make([]string, 17) },
	} {
		b := taught(4, 5)
		change(b)
		if _, err := storage.EncodeBatch(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
