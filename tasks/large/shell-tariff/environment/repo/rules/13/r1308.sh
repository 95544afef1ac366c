# Book: in July and August books wait for cooler hours, at no charge but the handling.
r1308() {
	case $m in
	7 | 8) p=$((p + 45)) ;;
	esac
}
