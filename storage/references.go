package storage

import "encoding/json"

// References are the Refs in a JSON document, wherever in it they stand, in no particular order:
// objects with at least the members of a Ref. An error is a document that is not JSON.
func References(document []byte) ([]Ref, error) {
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		return nil, err
	}
	return references(v, nil), nil
}

func references(v any, refs []Ref) []Ref {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			refs = references(item, refs)
		}
	case map[string]any:
		if ref, ok := reference(v); ok {
			return append(refs, ref)
		}
		for _, item := range v {
			refs = references(item, refs)
		}
	}
	return refs
}

func reference(v map[string]any) (Ref, bool) {
	key, isKey := v["ref"].(string)
	digest, isDigest := v["sha256"].(string)
	size, isSize := v["size"].(float64)
	return Ref{Key: key, SHA256: digest, Size: int64(size)}, isKey && isDigest && isSize && key != ""
}
