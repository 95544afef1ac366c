package topology

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Statements from outside name objects. A reference is checked here before anybody opens
// the object: the answer to a wrong reference must not tell anything about an object that
// its sender could not read.

// blobPrefix begins the keys of objects that everybody may write, and read by digest.
const blobPrefix = "blobs/"

const (
	policyMark  = "<policy>"
	filesFolder = "/files/"
	// weightFiles begins the keys of a policy's files of weights, which follow from their digests.
	weightFiles = "weights/" + policyMark + filesFolder
)

// CheckReferences reports the first reference of a statement from outside that lies where the roles
// that state such facts may not write, or whose key is not made of its digest. The document is the
// statement's body as JSON. The error quotes the statement alone: the store is not asked.
func CheckReferences(t events.Type, run, entity string, document []byte) error {
	refs, err := storage.References(document)
	if err != nil {
		return err
	}
	places := statedPrefixes(t, run, entity)
	for _, ref := range refs {
		if err := checkReference(ref, places); err != nil {
			return err
		}
	}
	return nil
}

// CheckBlob reports whether a reference names a blob under its own digest.
func CheckBlob(ref storage.Ref) error { return checkReference(ref, []string{blobPrefix}) }

// CheckWeights reports whether a reference names a blob, or a file of a policy's
// weights, under its own digest.
func CheckWeights(ref storage.Ref, policy string) error {
	return checkReference(ref, []string{blobPrefix, strings.ReplaceAll(weightFiles, policyMark, policy)})
}

// IsBlob reports whether a key is one of a blob.
func IsBlob(key string) bool {
	digest := path.Base(key)
	return len(digest) == 64 && key == storage.BlobKey(digest)
}

// statedPrefixes are the prefixes of the objects that a statement of a type about a run may
// name: those that everybody may write, and those of the roles that state the type. An
// entity of weights is a policy.
func statedPrefixes(t events.Type, run, entity string) []string {
	var places []string
	for _, s := range Objects {
		role := slices.ContainsFunc(Roles, func(r RoleSpec) bool {
			return slices.Contains(r.States, t) &&
				slices.Contains(s.RoleWrites, r.Role)
		})
		if s.Prefix != ProbePrefix && (s.Prefix != weightFiles || t == events.WeightsSubmittedType) &&
			(role || slices.Contains(s.Writes, Anybody)) {
			places = append(places, strings.NewReplacer("<run>", run, policyMark, entity).Replace(s.Prefix))
		}
	}
	return places
}

func checkReference(ref storage.Ref, places []string) error {
	if err := storage.ValidateKey(ref.Key); err != nil {
		return err
	}
	i := slices.IndexFunc(places, func(prefix string) bool { return strings.HasPrefix(ref.Key, prefix) })
	switch {
	case i < 0:
		return fmt.Errorf("ref %.200q: name an object below %s", ref.Key, strings.Join(places, " or "))
	case places[i] != blobPrefix && !strings.HasSuffix(places[i], filesFolder):
		return nil
	}
	if err := ref.Validate(); err != nil {
		return err
	}
	want := places[i] + ref.SHA256
	if places[i] == blobPrefix {
		want = storage.BlobKey(ref.SHA256)
	}
	if ref.Key != want {
		return fmt.Errorf("ref %.200q: the key follows from the object's digest: %s", ref.Key, want)
	}
	return nil
}
