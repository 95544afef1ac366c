# Express: in July and August express items wait for cooler hours, at no charge but the handling.
r2208() {
	case $m in
	7 | 8) p=$((p + 45)) ;;
	esac
}
