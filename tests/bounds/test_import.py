import subprocess
import sys


def test_bounds_load_no_deep_learning_library():
    code = (
        "import sys, davylamp.bounds, davylamp.bounds.mechanisms; "
        "davylamp.bounds.dp_sgd(1.0, 0.1, 2); "
        "heavy = {'torch', 'transformers', 'peft', 'accelerate'} & {m.split('.')[0] for m in sys.modules}; "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dp_accounting_is_loaded_only_for_dp_sgd():
    code = "import sys, davylamp.bounds; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
