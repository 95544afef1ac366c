# Air mail: in July and August items that fly wait for cooler hours, at no charge but the handling.
r2308() {
	case $m in
	7 | 8) p=$((p + 25)) ;;
	esac
}
