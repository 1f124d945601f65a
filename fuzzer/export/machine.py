"""The machine on which a script showed its fault, and the lines by which the script compares another one with it."""

from __future__ import annotations

from dataclasses import dataclass

from fuzzer.language.devices import HOST, device_row

# What a worker's environment does, in lines of a script. The first is for memory that nobody wrote, which often holds
# zeros by chance.
PERTURBED = "ctypes.CDLL(None).mallopt(-6, 165)  # glibc's M_PERTURB: fills memory that is handed out or given back"
ONE_THREAD = "torch.set_num_threads(1)"


@dataclass(frozen=True)
class Machine:
    """torch     its version.  device   as torch names it.
    chip      the vector instructions that torch uses (`AVX2`), or the accelerator's name.
    threads   of torch; the number matters no further than whether it is 1.
    """

    torch: str
    device: str
    chip: str
    threads: int

    def __str__(self) -> str:
        threads = f", {self.threads} thread{'s' * (self.threads != 1)}" if self._host else ""
        return f"torch {self.torch}, {self.device} ({self.chip}{threads})"

    @property
    def _host(self) -> bool:
        return device_row(self.device) is HOST

    def ending(self, threads: bool) -> list[str]:
        """The lines that define `end(there)`, which ends the script with 1 while the fault is there, with 0 when it is
        gone, with 2 where this machine cannot tell.

        threads   whether the script leaves the number of threads as it is.
        """
        release, kind = self.torch.partition("+")[0], device_row(self.device).type
        chip = "torch.backends.cpu.get_cpu_capability()" if self._host else f"torch.{kind}.get_device_name()"
        unlike = [f'"torch < {release}": torch.__version__ < "{release}"', f'"no {self.chip}": {chip} != "{self.chip}"']
        if threads and self._host:
            name, relation = ("one thread", "==") if self.threads > 1 else ("threads", ">")
            unlike.append(f'"{name}": torch.get_num_threads() {relation} 1')
        first, *others = unlike
        return [
            "def end(there):  # 0 says gone, which only a machine like the one above can tell",
            f"    unlike = {{{first},",
            *(f"              {one}," for one in others[:-1]),
            f"              {others[-1]}}}",
            "    if not there and any(unlike.values()):",
            '        print("it cannot be told here:", *[name for name in unlike if unlike[name]])',
            "    sys.exit(1 if there else 2 * any(unlike.values()))",
        ]
