package storage_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

func TestReferences(t *testing.T) {
	a := storage.Ref{Key: "blobs/a", SHA256: "aa", Size: 1}
	b := storage.Ref{Key: "blobs/b", SHA256: "bb", Size: 2}
	const jsonA, jsonB = `{"ref":"blobs/a","sha256":"aa","size":1}`,
		`{"name":"b","ref":"blobs/b","sha256":"bb","size":2}`
	for document, want := range map[string][]storage.Ref{
		`null`: nil,
		jsonA:  {a},
		`{"x":{"y":[` + jsonA + `,1]},"z":` + jsonB + `}`: {a, b},
		`[` + jsonA + `,` + jsonA + `]`:                   {a, a},
		`{"ref":"","sha256":"","size":0}`:                 nil, // of a task without tests
		`{"ref":"x","sha256":"y"}`:                        nil,
		`{"ref":1,"sha256":"y","size":1}`:                 nil,
		`{"ref":"x","sha256":"y","size":"1"}`:             nil,
	} {
		t.Run(document, func(t *testing.T) {
			got, err := storage.References([]byte(document))
			slices.SortFunc(got, func(a, b storage.Ref) int { return cmp.Compare(a.Key, b.Key) })
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v", document, got, err)
			}
		})
	}
	if _, err := storage.References([]byte(`{"ref`)); err == nil {
		t.Error("half a document was read")
	}
}
