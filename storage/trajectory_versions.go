package storage

// versionsFit reports whether the versions of a message's tokens, where there are any, say
// of each token exactly one.
func (m *Message) versionsFit() bool {
	if len(m.Versions) == 0 {
		return true
	}
	end, oldest := int64(0), m.Versions[0].Version
	for _, v := range m.Versions {
		if int64(v.Start) != end || v.Length <= 0 || v.Version < -1 || v.Stale {
			return false
		}
		end, oldest = end+int64(v.Length), min(oldest, v.Version)
	}
	return end == int64(len(m.TokenIDs)) && oldest == m.PolicyVersion
}

// VersionRange is the oldest and the newest of the versions that sampled the message, as far as
// they are known; -1, -1 where none is.
func (m *Message) VersionRange() (low, high int64) {
	r := newVersionRange()
	r.addMessage(m)
	return r.bounds()
}

func (r *versionRange) addMessage(m *Message) {
	r.add(m.PolicyVersion)
	for _, v := range m.Versions {
		r.add(v.Version)
	}
}

// UnknownVersions is how many of the message's sampled tokens are of a
// version that nobody reported.
func (m *Message) UnknownVersions() (tokens int) {
	for start, end := range runs(m.LossMask) {
		for span, version := range m.versionsOf(start, end) {
			if version < 0 {
				tokens += span[1] - span[0]
			}
		}
	}
	return tokens
}

// versionsOf yields the parts of a stretch of the message's tokens, from the first to before the
// last index, with the version of each.
func (m *Message) versionsOf(start, end int) func(yield func(span [2]int, version int64) bool) {
	return func(yield func([2]int, int64) bool) {
		if len(m.Versions) == 0 {
			yield([2]int{start, end}, m.PolicyVersion)
			return
		}
		for _, v := range m.Versions {
			from, to := max(start, int(v.Start)), min(end, int(v.Start+v.Length))
			if from < to && !yield([2]int{from, to}, v.Version) {
				return
			}
		}
	}
}
