package policy

// FNV-1a with 64 bits (Fowler, Noll, Vo), written out so that features are
// hashed without an allocation.
const (
	hashSeed  uint64 = 14695981039346656037
	hashPrime uint64 = 1099511628211
)

func hashString(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * hashPrime
	}
	return (h ^ uint64(len(s))<<8 ^ 0xff) * hashPrime // a separator: ("ab","c") and ("a","bc") differ
}

func hashInt(h uint64, n int) uint64 {
	h = (h ^ uint64(n)&0xff) * hashPrime
	h = (h ^ uint64(n)>>8&0xff) * hashPrime
	return (h ^ 0xfe) * hashPrime
}

// hashTokens digests a prompt for the seed of the sampler.
func hashTokens(tokens []int32) uint64 {
	h := hashSeed
	for _, t := range tokens {
		h = (h ^ uint64(uint32(t))) * hashPrime
	}
	return h
}
