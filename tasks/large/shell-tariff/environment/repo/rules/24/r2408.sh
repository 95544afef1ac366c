# Sea mail: in July and August items that go by ship wait for cooler hours, at no charge but the handling.
r2408() {
	case $m in
	7 | 8) p=$((p + 15)) ;;
	esac
}
